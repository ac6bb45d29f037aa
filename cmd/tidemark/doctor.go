package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/admin/doctor"
)

func (a *app) doctorCommand() *cobra.Command {
	return a.printing(a.client(&cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong, or soon will be, and say what to do",
		Long: `Examine the cluster and each of its servers: whether everything is served; disks (room,
reserve, speed), processors, memory and open files, with the limits of the machine and of the
control group; clocks and the network between all pairs of servers; versions, certificates, and
settings that differ or contradict each other; replicas, placement and backups. For each finding
stands what to do.

Each server pings the others a few times and reads some files of its system; that is all that the
command costs. Findings are advice (no problem now), warnings (a problem, or one soon), or bad
(something does not work). The exit code is 0 without warnings, 7 with warnings, and 8 if something
does not work. While authentication is enabled, the command needs the role root.`,
		Example: `  tidemark doctor
  tidemark doctor --output json`,
		Args: arguments("", 0, 0),
		RunE: a.verb(func(ctx context.Context, _ []string) error {
			return a.withClient(ctx, func(client *kv.Client) error { return a.doctor(ctx, client) })
		}),
	}))
}

func (a *app) doctor(ctx context.Context, client *kv.Client) error {
	facts, err := doctor.Gather(ctx, admin.New(client))
	if err != nil {
		return err
	}
	report := doctor.Judge(facts)
	if err := a.printReport(report); err != nil {
		return err
	}
	switch report.Level() {
	case doctor.Bad:
		return exit.Silent(exit.Partly)
	case doctor.Warning:
		return exit.Silent(exit.Degraded)
	}
	return nil
}

// tones are the colours of levels.
var tones = map[doctor.Level]output.Tone{doctor.Fine: output.Good, doctor.Advice: output.Plainly,
	doctor.Warning: output.Warning, doctor.Bad: output.Bad}

// printReport prints a report. For programs it prints a row for each finding, and for each check
// without a finding. For people it prints a line for each check, with its findings below.
func (a *app) printReport(report doctor.Report) error {
	if a.format != output.Table {
		list := a.list(output.Column{Name: "check"}, output.Column{Name: "level"},
			output.Column{Name: "subjects"}, output.Column{Name: "finding"}, output.Column{Name: "do"})
		for _, c := range report {
			if len(c.Findings) == 0 {
				list.Row(c.Area, doctor.Fine, []string{}, c.Looked, nil)
			}
			for _, f := range c.Findings {
				list.Row(c.Area, f.Level, f.Subjects, f.What, orNone(f.Do))
			}
		}
		return list.Flush()
	}
	screen := a.screen()
	var text strings.Builder
	for _, c := range report {
		level := c.Level()
		word := fmt.Sprintf("%-8s", level)
		line := screen.Text(word + " " + output.Plain(fmt.Sprintf("%-13s %s", c.Area, c.Looked)) + "\n")
		text.WriteString(screen.Paint(tones[level], word) + line[len(word):])
		for _, f := range c.Findings {
			what := f.What
			if len(f.Subjects) > 0 {
				what = strings.Join(f.Subjects, ", ") + ": " + what
			}
			lead := "         " + f.Level.String() + ": "
			if f.Level == level && len(c.Findings) == 1 {
				lead = "         "
			}
			text.WriteString(screen.Text(lead + output.Plain(what) + "\n"))
			if f.Do != "" {
				text.WriteString(screen.Text("         to do: " + output.Plain(f.Do) + "\n"))
			}
		}
	}
	_, err := fmt.Fprint(a.out, text.String())
	return err
}
