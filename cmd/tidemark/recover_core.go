package main

import (
	"context"
	"math/rand/v2"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/deploy/embedded/offline"
)

func (a *app) recoverCoreCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "core",
		Short: "Recover the core from one member",
		Long: `Make the consistent core go on from one of its members, when a majority of them is
lost for good. The member may not know of keyspaces that were created or dropped shortly before, of
changes of replicas, and of writes to the coordination store, including locks and leases. Stop
clients that hold locks first, unless the resource that they lock checks fencing numbers.

Keep the lost members switched off from now on: a majority of them that comes back would be a second
core. If several members are left, take the member with the highest term in "plan" and, among
several of these, the highest last entry; add the others again like new members, with empty
directories.`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(a.recoverCorePlanCommand(), a.recoverCoreApplyCommand())
	return root
}

func (a *app) recoverCorePlanCommand() *cobra.Command {
	var dir, to string
	cmd := &cobra.Command{
		Use:     "plan --dir DIR --to FILE",
		Short:   "Plan how the core goes on from a stopped member",
		Long:    `Plan how the core goes on from the member of a stopped server. It changes nothing.`,
		Example: `  tidemark recover core plan --dir /var/lib/tidemark --to core.json`,
		Args:    arguments("", 0, 0),
		RunE: a.verb(func(context.Context, []string) error {
			if dir == "" || to == "" {
				return exit.Usagef("say whose directory it is, and where to write the plan: --dir DIR " +
					"--to FILE")
			}
			plan, err := offline.PlanCoreRecovery(nil, dir, rand.Uint64)
			if err != nil {
				return err
			}
			if err := writeJSON(to, plan); err != nil {
				return err
			}
			list := a.list(output.Column{Name: "store"}, output.Column{Name: "members"},
				output.Column{Name: "term", Number: true},
				output.Column{Name: "last entry", Number: true},
				output.Column{Name: "acknowledged changes"})
			members := strings.Join(plan.Members, " ")
			list.Row("placement", members, plan.LastTerm, plan.LastIndex,
				whatMayLack(&plan.StoreRecovery))
			if r := plan.Coordination; r != nil {
				list.Row("coordination", members, r.LastTerm, r.LastIndex, whatMayLack(r))
			}
			if err := list.Flush(); err != nil {
				return err
			}
			if plan.Coordination == nil {
				a.say("This member has nothing of the coordination store. If other members had one, all " +
					"of it is lost, and it begins empty.")
			}
			a.say("The other members are given up for good: keep them switched off, for a majority of " +
				"them would be a second core.")
			a.say("The plan is in %s. Nothing was changed yet.", to)
			return nil
		}),
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the data directory of the stopped server")
	cmd.Flags().StringVar(&to, "to", "", "the file to write the plan to; it must not be there")
	return a.printing(cmd)
}

// whatMayLack describes which acknowledged changes may be missing.
func whatMayLack(r *offline.StoreRecovery) string {
	switch {
	case r.Empty:
		return "are all missing"
	case r.MayLack:
		return "may be missing"
	}
	return "are all there"
}

func (a *app) recoverCoreApplyCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "apply PLAN --dir DIR",
		Short: "Carry out a plan for the core on a stopped server",
		Long: `Carry out a plan of "recover core plan" in the directory of which it was made. The
member there is the only member of the core from then on. It cannot be undone.

If the command is interrupted, give it once more: the server does not start before it is done.`,
		Example: `  tidemark recover core apply core.json --dir /var/lib/tidemark`,
		Args:    arguments("a PLAN", 1, 1),
		RunE: a.verb(func(_ context.Context, args []string) error {
			if dir == "" {
				return exit.Usagef("say in which directory: --dir DIR")
			}
			plan := &offline.CoreRecovery{}
			if err := readJSON(args[0], plan); err != nil {
				return err
			}
			before, err := offline.ApplyCoreRecovery(nil, dir, plan)
			if err != nil {
				return err
			}
			list := a.list(output.Column{Name: "plan"}, output.Column{Name: "outcome"})
			outcome := "done"
			if before {
				outcome = "was done before"
			}
			list.Row(plan.ID, outcome)
			return list.Flush()
		}),
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the data directory of the stopped server")
	return a.printing(cmd)
}
