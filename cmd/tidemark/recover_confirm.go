package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/deploy/embedded/offline"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

func (a *app) recoverConfirmCommand() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "confirm PLAN",
		Short: "Tell the cluster of a plan that was carried out",
		Long: `Tell the cluster's core of a plan that "recover apply" has carried out. The core then
refuses the lost nodes, which become GONE, and accepts the recovered partitions as they are. Their
replicas are added again on other nodes, if there are enough. The command may be repeated, and shows
how many partitions have not reported yet.

The exit code is 0 when all partitions of the plan have reported, and 7 while some have not. With
--wait the command asks until all have reported, or --timeout is over, and says which nodes it waits
for.`,
		Example: `  tidemark recover confirm plan.json --wait --timeout 2m`,
		Args:    arguments("a PLAN", 1, 1),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			plan := &offline.RecoveryPlan{}
			err := readJSON(args[0], plan)
			if err == nil {
				err = plan.Check()
			}
			if err != nil {
				return err
			}
			return a.withClient(ctx, func(client *kv.Client) error {
				return a.confirmRecovery(ctx, client, plan, wait)
			})
		}),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until all partitions of the plan have reported")
	return a.printing(a.client(cmd))
}

// confirmRecovery tells the core of a plan. With wait, it repeats that until all partitions have
// reported.
func (a *app) confirmRecovery(
	ctx context.Context, client *kv.Client, plan *offline.RecoveryPlan, wait bool,
) error {
	var partitions []admin.RecoveredPartition
	nodes := map[uint64]bool{}
	for _, r := range plan.Recovered {
		partitions = append(partitions, admin.RecoveredPartition{Partition: r.Partition,
			Keyspace: r.Keyspace, Node: r.Node, Replica: r.Replica, Membership: r.Membership,
			KnownMembership: r.Known})
		nodes[r.Node] = true
	}
	limited := ctx
	if wait && a.timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, a.timeout)
		defer cancel()
	}
	if wait {
		if err := a.awaitSilence(limited, client, plan.Lost); err != nil {
			return err
		}
	}
	var last admin.Recovered
	said := ""
	for known := false; ; known = true {
		now, err := admin.New(client).ConfirmRecovery(limited, plan.ID, plan.Lost, partitions)
		switch {
		case err == nil:
			last = now
		case !known || limited.Err() == nil:
			return err
		}
		if last.Waiting == 0 || !wait || limited.Err() != nil {
			break
		}
		if text := waitsForRecovered(limited, client, last.Waiting, nodes); text != said {
			a.say("%s", text)
			said = text
		}
		select {
		case <-limited.Done():
		case <-time.After(lookAgain):
		}
		if limited.Err() != nil {
			break
		}
	}
	list := a.list(output.Column{Name: "recovered", Number: true},
		output.Column{Name: "waiting", Number: true}, output.Column{Name: "dropped", Number: true})
	list.Row(last.Recovered, last.Waiting, last.Dropped)
	if err := list.Flush(); err != nil {
		return err
	}
	if last.Waiting == 0 {
		return nil
	}
	return &exit.Error{Code: exit.Degraded, Err: fmt.Errorf("%s of the plan not reported yet: see "+
		"that their nodes run and were given the plan, and confirm again",
		plural(int(last.Waiting), "partition"))}
}

// silenceTakes is the longest time for which a node that was switched off counts as alive: its
// lease, and the time to notice the end of the lease.
const silenceTakes = 15 * time.Second

// awaitSilence waits until no lost node counts as alive. If a node still does after that time, the
// core refuses the plan.
func (a *app) awaitSilence(ctx context.Context, client *kv.Client, lost []uint64) error {
	for began := time.Now(); time.Since(began) < silenceTakes; {
		nodes, err := admin.New(client).Nodes(ctx)
		if err != nil {
			return err
		}
		var alive []uint64
		for _, n := range nodes {
			if n.Alive && slices.Contains(lost, n.ID) {
				alive = append(alive, n.ID)
			}
		}
		if len(alive) == 0 {
			return nil
		}
		a.say("waits until lost nodes do not count as alive any more: %s", numbers(alive))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(silenceTakes / 5):
		}
	}
	return nil
}

// waitsForRecovered describes what a recovery waits for.
func waitsForRecovered(
	ctx context.Context, client *kv.Client, waiting uint64, of map[uint64]bool,
) string {
	text := plural(int(waiting), "partition") + " not reported yet"
	nodes, err := admin.New(client).Nodes(ctx)
	if err != nil {
		return text
	}
	var down []uint64
	for _, n := range nodes {
		if of[n.ID] && !n.Alive {
			down = append(down, n.ID)
		}
	}
	if len(down) > 0 {
		return text + "; waits for nodes that are down: " + numbers(down)
	}
	return text + "; their nodes are alive"
}
