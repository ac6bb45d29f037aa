package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/deploy/embedded/offline"
)

func (a *app) recoverCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "recover",
		Short: "Recover from the loss of a majority",
		Long: `Make partitions go on that have lost a majority of their replicas for good. Writes
that were acknowledged by the lost replicas, and by no other, are lost, so this is the last resort:
first try to bring the lost nodes back.

  1. Stop all servers, and keep the lost ones switched off from now on.
  2. "recover survey" on each surviving server, and "recover plan" with all of the surveys.
  3. "recover apply" on each surviving server. Then start them.
  4. "recover confirm" with the same plan.

docs/operations.md, "When a majority is lost", has the procedure step by step.`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(a.recoverSurveyCommand(), a.recoverPlanCommand(), a.recoverApplyCommand(),
		a.recoverConfirmCommand(), a.recoverCoreCommand())
	return root
}

func (a *app) recoverSurveyCommand() *cobra.Command {
	var dir, to string
	cmd := &cobra.Command{
		Use:   "survey --dir DIR --to FILE",
		Short: "Write a survey of a stopped server",
		Long: `Write a survey of the node of a stopped server into a file: its replicas and how far
their logs reach, and the other nodes and partitions that it knows. The command changes nothing
else. Bring the files of all surviving servers to one machine, for "recover plan".`,
		Example: `  tidemark recover survey --dir /var/lib/tidemark --to node-1.json`,
		Args:    arguments("", 0, 0),
		RunE: a.verb(func(context.Context, []string) error {
			if dir == "" || to == "" {
				return exit.Usagef("say whose directory it is, and where to: --dir DIR --to FILE")
			}
			s, err := offline.SurveyDirectory(nil, dir, nil)
			if err != nil {
				return err
			}
			if err := writeJSON(to, s); err != nil {
				return err
			}
			list := a.list(output.Column{Name: "node", Number: true},
				output.Column{Name: "replicas", Number: true}, output.Column{Name: "file"})
			list.Row(s.Node, len(s.Replicas), to)
			return list.Flush()
		}),
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the data directory of the stopped server")
	cmd.Flags().StringVar(&to, "to", "", "the file to write; it must not be there")
	return a.printing(cmd)
}

func (a *app) recoverPlanCommand() *cobra.Command {
	var lost []uint
	var to string
	cmd := &cobra.Command{
		Use:   "plan --lost NODE,... --to FILE SURVEY|DIR...",
		Short: "Plan how partitions go on without lost nodes",
		Long: `Plan how partitions go on that have no majority without the nodes --lost, from the
surveys of all other nodes, or their directories if they are on this machine. The command changes
nothing.

One replica of each such partition goes on: the one whose log reaches furthest. The list names it,
and says whether acknowledged writes can be missing: "may" if the lost nodes can have acknowledged
writes by themselves. Partitions that still have a majority are left alone.

Every node must be named as lost, or have its survey here: a forgotten node may have entries that
the others lack.`,
		Example: `  tidemark recover plan --lost 3,4 --to plan.json node-1.json node-2.json`,
		Args:    arguments("a SURVEY or DIR of each surviving node", 1, -1),
		RunE: a.verb(func(_ context.Context, args []string) error {
			if len(lost) == 0 || to == "" {
				return exit.Usagef("say which nodes are lost for good, and where to write the plan: " +
					"--lost NODE,... --to FILE")
			}
			var surveys []*offline.Survey
			for _, path := range args {
				s, err := readSurvey(path)
				if err != nil {
					return err
				}
				surveys = append(surveys, s)
			}
			var nodes []uint64
			for _, n := range lost {
				nodes = append(nodes, uint64(n))
			}
			plan, err := offline.MakeRecoveryPlan(surveys, nodes, rand.Uint64)
			if err != nil {
				return err
			}
			if err := writeJSON(to, plan); err != nil {
				return err
			}
			if err := a.printPlan(plan); err != nil {
				return err
			}
			a.say("%s", strings.TrimRight(plan.Warning(), "\n"))
			a.say("The plan is in %s. Nothing was changed yet.", to)
			return nil
		}),
	}
	cmd.Flags().UintSliceVar(&lost, "lost", nil, "the ids of the nodes that are lost for good")
	cmd.Flags().StringVar(&to, "to", "", "the file to write the plan to; it must not be there")
	return a.printing(cmd)
}

func (a *app) printPlan(plan *offline.RecoveryPlan) error {
	list := a.list(output.Column{Name: "partition", Number: true},
		output.Column{Name: "goes on at node", Number: true},
		output.Column{Name: "keys", Number: true}, output.Column{Name: "last entry", Number: true},
		output.Column{Name: "others", Number: true}, output.Column{Name: "acknowledged writes"},
		output.Column{Name: "notes"}, output.Column{Name: "span", Detail: true})
	for _, r := range plan.Recovered {
		lack := "are all there"
		if r.MayLack {
			lack = "may be missing"
		}
		list.Row(r.Partition, r.Node, r.LiveKeys, r.LastIndex, len(r.Others), lack,
			orNone(strings.Join(r.Notes, "; ")), r.Span)
	}
	for _, p := range plan.Gone {
		list.Row(p.Partition, nil, nil, nil, nil, "are lost", "no replica is left", p.Span)
	}
	return list.Flush()
}

func (a *app) recoverApplyCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "apply PLAN --dir DIR",
		Short: "Carry out a plan on a stopped server",
		Long: `Carry out a plan of "recover plan" in the directory of a stopped server. Do it on
each surviving server, before any of them is started again. It cannot be undone.

The command changes nothing if the directory is not as the plan found it. If it is interrupted, give
it once more: the server does not start before it is done. Giving it again after that changes
nothing.`,
		Example: `  tidemark recover apply plan.json --dir /var/lib/tidemark`,
		Args:    arguments("a PLAN", 1, 1),
		RunE: a.verb(func(_ context.Context, args []string) error {
			if dir == "" {
				return exit.Usagef("say in which directory: --dir DIR")
			}
			plan := &offline.RecoveryPlan{}
			if err := readJSON(args[0], plan); err != nil {
				return err
			}
			done, err := offline.ApplyRecovery(nil, dir, plan, nil)
			if err != nil {
				return err
			}
			list := a.list(output.Column{Name: "plan"}, output.Column{Name: "go on here", Number: true},
				output.Column{Name: "go on elsewhere", Number: true}, output.Column{Name: "outcome"})
			outcome := "done"
			if done.Done {
				outcome = "was done before"
			}
			list.Row(plan.ID, done.Recovered, done.Retired, outcome)
			return list.Flush()
		}),
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the data directory of the stopped server")
	return a.printing(cmd)
}

// readSurvey reads a survey from a file, or surveys a directory.
func readSurvey(path string) (*offline.Survey, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return offline.SurveyDirectory(nil, path, nil)
	}
	s := &offline.Survey{}
	return s, readJSON(path, s)
}

// maxRecoverFile limits the size of the files that are read.
const maxRecoverFile = 1 << 30

func readJSON(path string, into any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	d := json.NewDecoder(io.LimitReader(f, maxRecoverFile))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%s: it is not what this command reads: %w", path, err)
	}
	return nil
}

// writeJSON writes a new file, durably.
func writeJSON(path string, from any) error {
	b, err := json.MarshalIndent(from, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(slices.Concat(b, []byte("\n")))
	return errors.Join(err, f.Sync(), f.Close())
}
