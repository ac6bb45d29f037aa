package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv/coord"
)

func (a *app) electCommand() *cobra.Command {
	var f holdFlags
	var observe bool
	cmd := &cobra.Command{
		Use:   "elect NAME PROPOSAL [-- COMMAND [ARGUMENT...]]",
		Short: "Take part in an election, or watch one",
		Long: `Campaign in the election NAME, wait to become its leader, and lead until this process is
interrupted; with a command, until the command ends. Others see PROPOSAL, such as the leader's
address. The process prints the leader when it leads; the exit code is 1 if the leadership is
lost. A command is run as lock runs it, with ` + fencingEnv + `: the command and its child
processes are ended before the service gives the leadership away, and with this process.

With --observe it does not campaign, but prints each leader, each proposal, and a dash when there is
no leader, until it is interrupted.`,
		Example: `  tidemark elect indexer 10.0.0.7:80 -- ./indexer
  tidemark elect indexer --observe --output json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if observe {
				return arguments("NAME with --observe", 1, 1)(cmd, args)
			}
			return nameAndCommand("NAME PROPOSAL [-- COMMAND]", 2, true)(cmd, args)
		},
	}
	cmd.RunE = a.holding(func(ctx context.Context, args []string) error {
		if observe {
			return a.observe(ctx, &f, args[0])
		}
		names, command := afterDash(cmd, args)
		if err := f.check(cmd, command); err != nil {
			return err
		}
		return a.elect(ctx, &f, names[0], names[1], command)
	})
	f.register(cmd)
	cmd.Flags().BoolVar(&observe, "observe", false, "print the leader, and do not campaign")
	return a.printing(a.recipe(cmd, &f.coordFlags))
}

func (a *app) elect(ctx context.Context, f *holdFlags, name, proposal string,
	command []string) error {
	return a.withSession(ctx, f, func(c *coord.Client, s *coord.Session) error {
		a.say("tidemark: campaigning in the election %s", name)
		leadership, err := c.Election(name).Campaign(ctx, s, []byte(proposal))
		if err != nil {
			return err
		}
		if len(command) > 0 {
			a.say("tidemark: leading %s, fencing number %d", name, leadership.Token())
			err := a.runCommand(ctx, leadership.Held(), s, f, a.in, command,
				fencing(leadership.Token()))
			return a.resign(ctx, leadership, err)
		}
		err = a.printLeader(coord.Leader{Key: leadership.Key(), Token: leadership.Token(),
			Proposal: []byte(proposal), Revision: int64(leadership.Token())})
		if err != nil {
			return err
		}
		a.say("tidemark: leading until this is interrupted")
		select {
		case <-ctx.Done():
			return a.resign(ctx, leadership, nil) // this is the normal end
		case <-leadership.Held().Done():
			return &exit.Error{Code: exit.Failed, Err: context.Cause(leadership.Held())}
		}
	})
}

func (a *app) resign(ctx context.Context, l *coord.Leadership, err error) error {
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if failed := l.Resign(ending); err == nil && !errors.Is(failed, coord.ErrOutcomeUnknown) {
		return failed
	}
	return err
}

func (a *app) observe(ctx context.Context, f *holdFlags, name string) error {
	return a.withCoord(ctx, &f.coordFlags, func(c *coord.Client) error {
		a.say("tidemark: watching the election %s", name)
		for leader, err := range c.Election(name).Observe(ctx) {
			switch {
			case err != nil && ctx.Err() != nil:
				return nil // this is the normal end
			case err != nil:
				return err
			}
			if leader.Gap {
				a.say("tidemark: there may have been other leaders; the history of it was compacted")
			}
			if err := a.printLeader(leader); err != nil {
				return err
			}
		}
		return nil
	})
}

func (a *app) printLeader(leader coord.Leader) error {
	list := a.list(output.Column{Name: "leader"}, output.Column{Name: "fencing number", Number: true},
		output.Column{Name: "revision", Number: true}, output.Column{Name: "key", Whole: true})
	if leader.Exists() {
		list.Row(notNil(leader.Proposal), int64(leader.Token), leader.Revision, leader.Key)
	} else {
		list.Row(nil, nil, leader.Revision, nil)
	}
	a.headers = false // the following lines have the same columns
	return list.Flush()
}
