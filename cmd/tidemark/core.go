package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

func (a *app) coreCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "core",
		Short: "List and change the members of the consistent core",
		Long: `List and change the members of the consistent core, while everything goes on.

Start a new member first: "tidemark start" with --roles core,node, and the present members as
--core. It offers itself, is shown by "tidemark core list" as a candidate, and becomes a member when
it is added. It gets the state before it votes, so it does no harm if it fails.

The commands may be interrupted and repeated: the change is recorded in the core, and goes on.`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.coreListCommand(), a.coreAddCommand(), a.corePromoteCommand(),
		a.coreRemoveCommand(), a.coreReplaceCommand())
	return cmd
}

func (a *app) coreListCommand() *cobra.Command {
	return a.printing(a.client(&cobra.Command{
		Use:   "list",
		Short: "List the members of the core, and the servers that offer themselves",
		Long: `List the members of the core: which member leads the core, which leads the
coordination store (locks, leases, the etcd API), which members answer, and which change is under
way. A candidate is a server that offers itself, and is no member yet. A learner gets the whole
state, and does not vote.`,
		Example: `  tidemark core list
  tidemark core list --output json`,
		Args: arguments("", 0, 0),
		RunE: a.verb(func(ctx context.Context, _ []string) error {
			return a.withClient(ctx, func(client *kv.Client) error {
				core, err := admin.New(client).Core(ctx)
				if err != nil {
					return err
				}
				return a.printCore(core)
			})
		}),
	}))
}

func (a *app) printCore(core admin.Core) error {
	list := a.list(output.Column{Name: "id", Number: true}, output.Column{Name: "address"},
		output.Column{Name: "role"}, output.Column{Name: "leads"},
		output.Column{Name: "leads coordination"}, output.Column{Name: "answers"},
		output.Column{Name: "behind", Number: true}, output.Column{Name: "under way", Sentences: true})
	doing := func(address string) any {
		if c := core.Change; c != nil && (c.Add == address || c.Remove == address) {
			return orNone(coreProgress(c))
		}
		return nil
	}
	for _, m := range core.Members {
		list.Row(m.ID, m.Address, m.Role, m.Leader, m.LeadsCoordination, output.Health(m.Answers),
			m.Behind, doing(m.Address))
	}
	if !slices.ContainsFunc(core.Members, func(m admin.CoreMemberInfo) bool {
		return m.LeadsCoordination
	}) {
		a.say("the coordination store (locks, leases, the etcd API) has no leader")
	}
	for _, x := range core.Candidates {
		list.Row(nil, x.Address, "candidate", nil, nil, true, nil, doing(x.Address))
	}
	return list.Flush()
}

// coreProgress describes the progress of a change.
func coreProgress(c *admin.CoreChange) string {
	if c.WaitsFor == "" {
		return c.Step
	}
	return c.Step + ": " + c.WaitsFor
}

func (a *app) coreAddCommand() *cobra.Command {
	var background, learner bool
	cmd := &cobra.Command{
		Use:   "add ADDRESS",
		Short: "Make a server that offers itself a member of the core",
		Long: `Make the server at an address a member of the core. The server must run, with --roles
core (or core,node), and must answer. It is a learner until it has the whole state, and votes then;
with --learner it stays a learner until "core promote". There can be one learner at a time.

A core of 2 or 4 voters can lose no more of them than a core of 1 or 3: go on to 3 or 5.`,
		Example: `  tidemark core add 10.0.0.4:7400
  tidemark core add 10.0.0.4:7400 --learner`,
		Args: arguments("ADDRESS", 1, 1),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			return a.changeCore(ctx, coreWish{add: args[0], learner: learner}, background)
		}),
	}
	cmd.Flags().BoolVar(&learner, "learner", false, "it does not vote until it is promoted")
	return a.coreChanging(cmd, &background)
}

func (a *app) corePromoteCommand() *cobra.Command {
	var background bool
	cmd := &cobra.Command{
		Use:   "promote MEMBER",
		Short: "Make a learner of the core vote",
		Long: `Make a learner vote that was added with "core add --learner"; name it by its address
or its id. The command waits until the learner has the whole state.`,
		Example: `  tidemark core promote 10.0.0.4:7400
  tidemark core promote 4`,
		Args:              arguments("MEMBER", 1, 1),
		ValidArgsFunction: a.complete(membersOffered),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			return a.changeCore(ctx, coreWish{add: args[0], member: true}, background)
		}),
	}
	return a.coreChanging(cmd, &background)
}

func (a *app) coreRemoveCommand() *cobra.Command {
	var background bool
	cmd := &cobra.Command{
		Use:   "remove MEMBER",
		Short: "Remove a member from the core",
		Long: `Remove a member, named by its address or its id, from the core. A member that leads
hands over first. The server's member of the core stops for good, and its data node, if it has one,
goes on.

The command is refused if the members that answer would be no majority of the remaining members.
Removing a new member that does not vote yet cancels "core add" or "core replace".`,
		Example: `  tidemark core remove 10.0.0.3:7400
  tidemark core remove 3`,
		Args:              arguments("MEMBER", 1, 1),
		ValidArgsFunction: a.complete(membersOffered),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			return a.changeCore(ctx, coreWish{remove: args[0]}, background)
		}),
	}
	return a.coreChanging(cmd, &background)
}

func (a *app) coreReplaceCommand() *cobra.Command {
	var background bool
	cmd := &cobra.Command{
		Use:   "replace MEMBER [ADDRESS]",
		Short: "Replace a member of the core by another server",
		Long: `Replace a member, which is named by its address or its id and may be lost, by the
server at an address. Both changes happen in one step: the core has as many voters as before at
every moment.

Without an address, the new member is at the address of the old one: the same machine with an empty
directory.`,
		Example: `  tidemark core replace 10.0.0.3:7400 10.0.0.4:7400
  tidemark core replace 10.0.0.3:7400`,
		Args:              arguments("MEMBER and ADDRESS", 1, 2),
		ValidArgsFunction: a.complete(membersOffered),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			return a.changeCore(ctx, coreWish{add: args[len(args)-1], remove: args[0]}, background)
		}),
	}
	return a.coreChanging(cmd, &background)
}

func (a *app) coreChanging(cmd *cobra.Command, background *bool) *cobra.Command {
	cmd.Flags().BoolVar(background, "background", false, "do not wait until it is done")
	return a.client(a.printing(cmd))
}

// coreWish is the requested change of the members: the server to be added and the member to be
// removed, by address or id.
type coreWish struct {
	add, remove string
	// learner: the new member stays without a vote. member: the server is a member already, and
	// should become a voter.
	learner, member bool
}

// changeCore requests a change of the members, and shows its progress until it is done.
func (a *app) changeCore(ctx context.Context, wish coreWish, background bool) error {
	for _, name := range []string{wish.add, wish.remove} {
		if _, err := strconv.ParseUint(name, 10, 64); name != "" && err != nil {
			if err := argument.CheckAddress("address", name, false); err != nil {
				return err
			}
		}
	}
	return a.withClient(ctx, func(client *kv.Client) error {
		if err := wish.begin(ctx, client); err != nil {
			return err
		}
		if background {
			core, err := admin.New(client).Core(ctx)
			if err != nil {
				return err
			}
			return a.printCore(core)
		}
		core, err := a.awaitCore(ctx, client)
		if err != nil {
			return err
		}
		if err := wish.check(core); err != nil {
			return err
		}
		if n := coreVoters(core); n%2 == 0 {
			a.say("the core has %d voters now, and can lose %d of them, as one of %d could: add or "+
				"remove one", n, (n-1)/2, n-1)
		}
		return a.printCore(core)
	})
}

func coreVoters(core admin.Core) (n int) {
	for _, m := range core.Members {
		if m.Role != "learner" {
			n++
		}
	}
	return n
}

// begin requests the change. If the server to be added is given by its id, it is replaced by its
// address.
func (w *coreWish) begin(ctx context.Context, client *kv.Client) error {
	if _, err := strconv.ParseUint(w.add, 10, 64); err == nil || w.member {
		core, err := admin.New(client).Core(ctx)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(core.Members, func(m admin.CoreMemberInfo) bool {
			return m.Address == w.add || strconv.FormatUint(m.ID, 10) == w.add
		})
		if at < 0 {
			return fmt.Errorf("the core has no member %s: see \"tidemark core list\"", w.add)
		}
		w.add = core.Members[at].Address
	}
	if w.learner {
		return admin.New(client).AddCoreLearner(ctx, w.add)
	}
	return admin.New(client).ChangeCore(ctx, w.add, w.remove)
}

// awaitCore shows the progress of the change on standard error until it is done.
func (a *app) awaitCore(ctx context.Context, client *kv.Client) (admin.Core, error) {
	before, answered := "", time.Now()
	for {
		core, err := admin.New(client).Core(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil && time.Since(answered) > coreSilence:
			return core, err
		case err == nil && core.Change == nil:
			return core, nil
		case err == nil:
			answered = time.Now()
			if text := coreProgress(core.Change); text != before {
				if text != "" {
					a.say("core: %s", text)
				}
				before = text
			}
		}
		select {
		case <-ctx.Done():
			return core, fmt.Errorf("interrupted, and the change goes on (see \"tidemark core "+
				"list\"): %w",
				context.Cause(ctx))
		case <-time.After(lookAgain):
		}
	}
}

// check returns an error if the result differs from the request because another command came
// between.
func (w *coreWish) check(core admin.Core) error {
	var addresses []string
	added, removed := w.add == "", true
	for _, m := range core.Members {
		addresses = append(addresses, m.Address)
		added = added || m.Address == w.add && (m.Role == "voter" || w.learner)
		if m.Address == w.remove && w.remove != w.add || strconv.FormatUint(m.ID, 10) == w.remove {
			removed = false
		}
	}
	if added && removed {
		return nil
	}
	return errors.New("the change was taken back by another command: the members of the core are " +
		strings.Join(addresses, ", "))
}
