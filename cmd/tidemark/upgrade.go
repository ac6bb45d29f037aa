package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

func (a *app) upgradeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Show and finalise the upgrade to a new release",
		Long: `Show how far the upgrade of the servers to a new release is, and finalise it.

Servers of two consecutive releases work together, in the formats and messages of the earlier one,
and each server can go back to it. When all servers run the new release, "tidemark upgrade finalize"
has them use what is new. From then on no server can go back.`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.upgradeStatusCommand(), a.upgradeFinalizeCommand(), a.upgradeAutoCommand())
	return cmd
}

func (a *app) upgradeStatusCommand() *cobra.Command {
	return a.printing(a.client(&cobra.Command{
		Use:   "status",
		Short: "Show which releases the servers run, and what is in the way",
		Long: `Show the servers that count, which are the nodes that are not decommissioned and the
members of the core: the version of each, the levels of formats and messages that its program
supports, the level that it has noted on its disk, and why the upgrade cannot be finalised with it.
Below them are the level of the cluster, and what finalising changes.`,
		Example: `  tidemark upgrade status
  tidemark upgrade status --output json`,
		Args: arguments("", 0, 0),
		RunE: a.verb(func(ctx context.Context, _ []string) error {
			return a.withClient(ctx, func(client *kv.Client) error {
				u, err := admin.New(client).Upgrade(ctx)
				if err != nil {
					return err
				}
				return a.printUpgrade(u)
			})
		}),
	}))
}

func (a *app) upgradeFinalizeCommand() *cobra.Command {
	var background bool
	cmd := &cobra.Command{
		Use:   "finalize",
		Short: "Have the servers use what is new in the release; there is no way back",
		Long: `Raise the cluster to the level of the new release. Every server notes that on its disk,
and then all of them use the new formats and messages. A server with a program of the release before
does not start any more, and there is no way back but a backup.

The command is refused, and changes nothing, while a server does not support the new level, or is
not known to: "tidemark upgrade status" lists those. It may be repeated.`,
		Example: `  tidemark upgrade finalize`,
		Args:    arguments("", 0, 0),
		RunE: a.verb(func(ctx context.Context, _ []string) error {
			return a.withClient(ctx, func(client *kv.Client) error {
				u, err := persist(ctx, func() (admin.Upgrade, error) {
					return admin.New(client).FinalizeUpgrade(ctx)
				})
				if err == nil && !background {
					u, err = a.awaitUpgrade(ctx, client, u)
				}
				if err != nil {
					return err
				}
				return a.printUpgrade(u)
			})
		}),
	}
	cmd.Flags().BoolVar(&background, "background", false, "do not wait until it is done")
	return a.printing(a.client(cmd))
}

// awaitUpgrade waits until the coming level is active.
func (a *app) awaitUpgrade(
	ctx context.Context, client *kv.Client, u admin.Upgrade,
) (admin.Upgrade, error) {
	for said := false; u.Coming > u.Level; said = true {
		if !said {
			a.say("every server notes level %d", u.Coming)
		}
		select {
		case <-ctx.Done():
			return u, fmt.Errorf("interrupted, and the upgrade goes on (see \"tidemark upgrade "+
				"status\"): %w", context.Cause(ctx))
		case <-time.After(lookAgain):
		}
		var err error
		if u, err = persist(ctx, func() (admin.Upgrade, error) {
			return admin.New(client).Upgrade(ctx)
		}); err != nil {
			return u, err
		}
	}
	return u, nil
}

func (a *app) upgradeAutoCommand() *cobra.Command {
	return a.printing(a.client(&cobra.Command{
		Use:   "auto AFTER|off",
		Short: "Finalise upgrades by themselves after a time, or never",
		Long: `Have this and all later upgrades finalised by themselves, so long after every server
supports the new level. The time begins anew when a server goes back. With "off", which is how a
cluster begins, upgrades wait for "tidemark upgrade finalize".`,
		Example: `  tidemark upgrade auto 72h
  tidemark upgrade auto off`,
		Args: arguments("AFTER or off", 1, 1),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			var after time.Duration
			if args[0] != "off" {
				var err error
				if after, err = time.ParseDuration(args[0]); err != nil || after < time.Minute {
					return exit.Usagef("%q is no time: give at least 1m, such as 72h, or \"off\"", args[0])
				}
			}
			return a.withClient(ctx, func(client *kv.Client) error {
				u, err := admin.New(client).SetUpgradeTimer(ctx, after)
				if err != nil {
					return err
				}
				return a.printUpgrade(u)
			})
		}),
	}))
}

// printUpgrade prints the servers; for people it adds the state of the cluster in sentences.
func (a *app) printUpgrade(u admin.Upgrade) error {
	programs := func(name string) output.Column { return output.Column{Name: name, Programs: true} }
	list := a.list(output.Column{Name: "address"}, output.Column{Name: "node", Number: true},
		output.Column{Name: "member", Number: true}, output.Column{Name: "version"},
		output.Column{Name: "answers"}, output.Column{Name: "min", Number: true},
		output.Column{Name: "max", Number: true}, output.Column{Name: "noted", Number: true},
		output.Column{Name: "level", Number: true},
		output.Column{Name: "in the way", Sentences: true}, programs("cluster level"),
		programs("cluster coming"), programs("cluster target"), programs("auto after"),
		programs("ready for"))
	number := func(id uint64) any {
		if id == 0 {
			return nil
		}
		return id
	}
	for _, s := range u.Servers {
		list.Row(s.Address, number(s.Node), number(s.Member), orNone(s.Version), output.Health(s.Alive),
			s.Min, s.Max, s.Noted, s.Level, orNone(s.Obstacle), u.Level, u.Coming, u.Target, u.AutoAfter,
			u.ReadyFor)
	}
	if err := list.Flush(); err != nil {
		return err
	}
	if a.format != output.Table {
		return nil
	}
	return a.print(upgradeText(u))
}

// upgradeText describes the state of the cluster in sentences.
func upgradeText(u admin.Upgrade) string {
	var b strings.Builder
	fmt.Fprintf(&b, "the cluster is at level %d (%s)", u.Level, u.Release)
	ready := !u.ReadySince.IsZero()
	switch {
	case u.Coming > u.Level:
		fmt.Fprintf(&b, "; level %d (%s) is active when every server that answers has noted it\n",
			u.Coming, u.TargetRelease)
	case u.Target == u.Level:
		b.WriteString(", and no server supports a higher one: there is nothing to finalise\n")
	case ready:
		fmt.Fprintf(&b, ", and every server has supported level %d (%s) for %s: \"tidemark upgrade "+
			"finalize\" raises it, and there is no way back then\n", u.Target, u.TargetRelease,
			u.ReadyFor.Round(time.Second))
	default:
		fmt.Fprintf(&b, "; the upgrade to level %d (%s) is under way, and every server can go back\n",
			u.Target, u.TargetRelease)
	}
	if u.AutoAfter > 0 {
		fmt.Fprintf(&b, "upgrades are finalised by themselves %s after every server supports them\n",
			u.AutoAfter)
	}
	for i, g := range u.Gates {
		if i == 0 {
			b.WriteString("after that:\n")
		}
		fmt.Fprintf(&b, "  %s: %s\n", g.Name, g.What)
	}
	return b.String()
}
