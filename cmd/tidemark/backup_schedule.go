package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/range/backup/archive"
)

// schedules has the commands about schedules of backups.
type schedules struct{ *app }

func (a schedules) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schedule",
		Short: "Have the cluster back itself up",
		Long: `Have the core's leader make full and incremental backups by a schedule, and write all
changes to a log in between, so that every moment can be restored ("tidemark restore --at"). What no
moment within the time of --keep needs is removed from the target.`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.set("create"), a.set("set"),
		a.listCommand(), a.pause("pause", true),
		a.pause("resume", false), a.run(),
		a.deleteCommand())
	return cmd
}

func (a schedules) set(verb string) *cobra.Command {
	s := admin.BackupSchedule{Name: "default"}
	full, incremental := argument.Period(24*time.Hour), argument.Period(time.Hour)
	log, retention := argument.Period(10*time.Second), argument.Period(14*24*time.Hour)
	var rate argument.Size
	short, long := "Create a schedule", `Create a schedule. The first full backup begins at once.`
	if verb == "set" {
		short, long = "Change a schedule", `Change a schedule, or create it. All of its settings are those
of this command, also those whose flags are not given. What it has made in the same TARGET is
continued; other keyspaces or recipients begin another log, and a backup at once.`
	}
	cmd := &cobra.Command{
		Use:   verb + " TARGET",
		Short: short,
		Long: long + `

Every moment of the last --keep can be restored, up to the last round of the log. With --log 0 only
the moments of backups can.`,
		Example: `  tidemark backup schedule ` + verb + ` s3://backups/prod --full 24h --log 10s --keep 14d
  tidemark backup schedule ` + verb + ` file:///mnt/backups --name weekly --full 7d --incremental 0 --log 0`,
		Args: arguments("TARGET", 1, 1),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			if _, err := archive.ParseRecipients(s.Recipients...); err != nil {
				return exit.Usagef("--recipient: %v", err)
			}
			s.Target, s.BytesPerSecond = args[0], uint64(rate)
			s.Full, s.Incremental = time.Duration(full), time.Duration(incremental)
			s.Log, s.Retention = time.Duration(log), time.Duration(retention)
			return a.withClient(ctx, func(client *kv.Client) error {
				put := admin.New(client).CreateBackupSchedule
				if verb == "set" {
					put = admin.New(client).SetBackupSchedule
				}
				info, err := put(ctx, s)
				if err != nil {
					return err
				}
				return a.print([]admin.BackupScheduleInfo{info})
			})
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&s.Name, "name", s.Name, "the `name` of the schedule")
	flags.Var(&full, "full", "how often a full backup is made")
	flags.Var(&incremental, "incremental", "how often an incremental backup is made; 0: never")
	flags.Var(&log, "log", "how often all changes are written to the log; 0: never")
	flags.Var(&retention, "keep", "for how long every moment can be restored; 0: for ever")
	flags.DurationVar(&s.Keep, "keep-history", 0, "for how long at most garbage collection leaves "+
		"what the next backup has to read (default: three times --incremental, 24h to 168h)")
	flags.StringSliceVar(&s.Include, "keyspaces", nil,
		"only these keyspaces, as names or patterns with * (default: all)")
	flags.StringSliceVar(&s.Exclude, "exclude", nil, "leave out these keyspaces")
	flags.StringSliceVar(&s.Recipients, "recipient", nil,
		"encrypt for this age recipient, age1...; may be repeated")
	flags.Var(&rate, "rate", "how much each node reads in a second at most (default: no limit)")
	flags.BoolVar(&s.Paused, "paused", false, "do not begin yet")
	return a.client(a.printing(cmd))
}

func (a schedules) print(all []admin.BackupScheduleInfo) error {
	list := a.list(output.Column{Name: "name"}, output.Column{Name: "state"},
		output.Column{Name: "full"}, output.Column{Name: "incremental"}, output.Column{Name: "log"},
		output.Column{Name: "keep"}, output.Column{Name: "last backup"}, output.Column{Name: "log has"},
		output.Column{Name: "target"}, output.Column{Name: "last id", Programs: true},
		output.Column{Name: "last full", Programs: true}, output.Column{Name: "running", Programs: true},
		output.Column{Name: "log id", Programs: true}, output.Column{Name: "keep history", Programs: true},
		output.Column{Name: "failures", Number: true, Programs: true},
		output.Column{Name: "error", Programs: true}, output.Column{Name: "log error", Programs: true})
	for _, s := range all {
		list.Row(s.Name, scheduleState(&s), argument.FormatPeriod(s.Full),
			argument.FormatPeriod(s.Incremental), argument.FormatPeriod(s.Log),
			argument.FormatPeriod(s.Retention), atMoment(s.LastAt), atMoment(s.LogAt), s.Target, s.Last,
			atMoment(s.FullAt), s.Running, s.LogID, argument.FormatPeriod(s.Keep), s.Failures, s.Error,
			s.LogError)
	}
	if err := list.Flush(); err != nil {
		return err
	}
	for _, s := range all {
		if s.Error != "" {
			a.say("schedule %s: %d backups have failed, the last one at %s: %s", s.Name, s.Failures,
				s.ErrorAt.Local().Format(time.DateTime), s.Error)
		}
		if s.LogError != "" {
			a.say("schedule %s: the log does not go on: %s", s.Name, s.LogError)
		}
	}
	return nil
}

// scheduleState returns a cell with the state of a schedule.
func scheduleState(s *admin.BackupScheduleInfo) output.Cell {
	switch {
	case s.Paused:
		return output.Toned("paused", output.Warning)
	case s.Broken:
		return output.Toned("chain broken", output.Bad)
	case s.Error != "":
		return output.Toned("failing", output.Bad)
	case s.LogError != "":
		return output.Toned("log stands still", output.Bad)
	case s.Running != "":
		return output.Toned("backing up", output.Good)
	}
	return output.Toned("ok", output.Good)
}

func (a schedules) listCommand() *cobra.Command {
	return a.client(a.printing(&cobra.Command{
		Use:   "list",
		Short: "List the schedules, and how far they are",
		Args:  arguments("", 0, 0),
		RunE: a.verb(func(ctx context.Context, _ []string) error {
			return a.withClient(ctx, func(client *kv.Client) error {
				all, err := admin.New(client).BackupSchedules(ctx)
				if err != nil {
					return err
				}
				return a.print(all)
			})
		}),
	}))
}

// one makes a command that changes one schedule and prints it.
func (a schedules) one(cmd *cobra.Command, do func(context.Context, *admin.Client,
	string) (admin.BackupScheduleInfo, error)) *cobra.Command {
	cmd.Args = arguments("the NAME of a schedule", 1, 1)
	cmd.RunE = a.verb(func(ctx context.Context, args []string) error {
		return a.withClient(ctx, func(client *kv.Client) error {
			info, err := do(ctx, admin.New(client), args[0])
			if err != nil {
				return err
			}
			return a.print([]admin.BackupScheduleInfo{info})
		})
	})
	return a.client(a.printing(cmd))
}

func (a schedules) pause(verb string, paused bool) *cobra.Command {
	short := "Pause a schedule: no backup begins, and the log stands still"
	if !paused {
		short = "Resume a schedule that is paused"
	}
	return a.one(&cobra.Command{Use: verb + " NAME", Short: short},
		func(ctx context.Context, c *admin.Client, name string) (admin.BackupScheduleInfo, error) {
			return c.PauseBackupSchedule(ctx, name, paused)
		})
}

func (a schedules) run() *cobra.Command {
	return a.one(&cobra.Command{Use: "run NAME",
		Short: "Have the next backup of a schedule begin now"},
		func(ctx context.Context, c *admin.Client, name string) (admin.BackupScheduleInfo, error) {
			return c.RunBackupSchedule(ctx, name)
		})
}

func (a schedules) deleteCommand() *cobra.Command {
	return a.client(a.printing(&cobra.Command{
		Use:   "delete NAME",
		Short: "End a schedule; what it has made stays",
		Args:  arguments("the NAME of a schedule", 1, 1),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			return a.withClient(ctx, func(client *kv.Client) error {
				if err := admin.New(client).DeleteBackupSchedule(ctx, args[0]); err != nil {
					return err
				}
				list := a.list(output.Column{Name: "deleted"})
				list.Row(args[0])
				return list.Flush()
			})
		}),
	}))
}
