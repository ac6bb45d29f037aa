package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// lookAgain is the longest pause between two looks at an operator. lookSoon is the first pause.
// Pauses double.
const (
	lookSoon  = 10 * time.Millisecond
	lookAgain = 500 * time.Millisecond
)

// looking is the last pause between two looks.
type looking time.Duration

// next doubles the pause, and returns it.
func (l *looking) next() time.Duration {
	*l = min(max(*l*2, looking(lookSoon)), looking(lookAgain))
	return time.Duration(*l)
}

func (a *app) moveCommand() *cobra.Command {
	var from, to uint64
	var background, cancel bool
	cmd := &cobra.Command{
		Use:   "move PARTITION --from NODE --to NODE",
		Short: "Move a partition's replica to another node",
		Long: `Move a replica of a partition from one node to another. The new replica gets a copy
first, and then votes in place of the old one, which is removed. Reads and writes go on meanwhile.

The move is recorded in the consistent core, and goes on whether this command waits for it or not:
interrupt it at any time, and see "tidemark operators". --cancel cancels the change under way.`,
		Example: `  tidemark move 17 --from 2 --to 5
  tidemark move 17 --cancel`,
		Args:              arguments("PARTITION", 1, 1),
		ValidArgsFunction: a.complete(partitionsOffered),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			partition, err := parsePartition(args[0])
			if err != nil {
				return err
			}
			if cancel {
				return a.withClient(ctx, func(client *kv.Client) error {
					return admin.New(client).CancelOperator(ctx, partition)
				})
			}
			if from == 0 || to == 0 {
				return exit.Usagef("say from which node to which: --from NODE --to NODE")
			}
			return a.withClient(ctx, func(client *kv.Client) error {
				if err := admin.New(client).MoveReplica(ctx, partition, from, to); err != nil {
					return err
				}
				outcome := "under way"
				if !background {
					if err := a.awaitOperator(ctx, client, partition, to); err != nil {
						return err
					}
					outcome = "moved"
				}
				list := a.list(output.Column{Name: "partition", Number: true},
					output.Column{Name: "from", Number: true}, output.Column{Name: "to", Number: true},
					output.Column{Name: "outcome"})
				list.Row(partition, from, to, outcome)
				return list.Flush()
			})
		}),
	}
	cmd.Flags().Uint64Var(&from, "from", 0, "the node that gives its replica up")
	cmd.Flags().Uint64Var(&to, "to", 0, "the node that gets one")
	a.completeFlag(cmd, "from", nodesOffered)
	a.completeFlag(cmd, "to", nodesOffered)
	cmd.Flags().BoolVar(&background, "background", false, "do not wait until it is done")
	cmd.Flags().BoolVar(&cancel, "cancel", false, "take back what is under way in the partition")
	return a.client(a.printing(cmd))
}

// followOperator shows the progress of a partition's operator on standard error until it has ended.
func (a *app) followOperator(ctx context.Context, client *kv.Client, partition uint64) error {
	return a.followOperators(ctx, client,
		func(o admin.OperatorInfo) bool { return o.Partition == partition })
}

// followOperators shows the progress of the operator that known selects, until there is no such
// operator.
func (a *app) followOperators(ctx context.Context, client *kv.Client,
	known func(admin.OperatorInfo) bool) error {
	before := ""
	for pause := looking(0); ; {
		operators, err := persist(ctx, func() ([]admin.OperatorInfo, error) {
			return admin.New(client).Operators(ctx)
		})
		if err != nil {
			return err
		}
		text, partition := "", uint64(0)
		for _, o := range operators {
			if known(o) {
				partition = o.Partition
				if text = o.Step; o.WaitsFor != "" {
					text += ": " + o.WaitsFor
				}
			}
		}
		if text == "" {
			return nil
		}
		if text != before {
			a.say("partition %d: %s", partition, text)
			before = text
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause.next()):
		}
	}
}

// awaitOperator follows a partition's operator to its end. It fails if the node does not have the
// replica then.
func (a *app) awaitOperator(ctx context.Context, client *kv.Client, partition, node uint64) error {
	if err := a.followOperator(ctx, client, partition); err != nil {
		return err
	}
	all, err := persist(ctx, func() ([]admin.PartitionInfo,
		error) {
		return admin.New(client).Partitions(ctx, "")
	})
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.ID != partition {
			continue
		}
		for _, r := range p.Replicas {
			if r.Node == node && !r.Learner {
				return nil
			}
		}
	}
	return fmt.Errorf("partition %d was not moved to node %d: it was cancelled, or its "+
		"keyspace dropped",
		partition, node)
}

func (a *app) operatorsCommand() *cobra.Command {
	return a.printing(a.client(&cobra.Command{
		Use:   "operators",
		Short: "List changes of replicas, splits and merges that are under way",
		Long: `List the changes of partitions' replicas, the splits and the merges that are under
way: the partition, the nodes, the key of a split or the right neighbour of a merge, the reason, the
next step, and what that step waits for.`,
		Example: `  tidemark operators
  tidemark operators --output json`,
		Args: arguments("nothing", 0, 0),
		RunE: a.verb(func(ctx context.Context, _ []string) error {
			return a.withClient(ctx, func(client *kv.Client) error {
				operators, err := admin.New(client).Operators(ctx)
				if err != nil {
					return err
				}
				return a.printOperators(operators)
			})
		}),
	}))
}

func (a *app) printOperators(operators []admin.OperatorInfo) error {
	list := a.list(output.Column{Name: "id", Number: true},
		output.Column{Name: "kind"}, output.Column{Name: "partition", Number: true},
		output.Column{Name: "keyspace"}, output.Column{Name: "from", Number: true, Detail: true},
		output.Column{Name: "to", Number: true, Detail: true},
		output.Column{Name: "leader", Number: true, Detail: true},
		output.Column{Name: "child", Number: true, Detail: true},
		output.Column{Name: "split at", Detail: true},
		output.Column{Name: "right", Number: true, Detail: true},
		output.Column{Name: "size", Number: true, Detail: true}, output.Column{Name: "age"},
		output.Column{Name: "why", Sentences: true}, output.Column{Name: "step", Sentences: true},
		output.Column{Name: "waits for", Sentences: true})
	for _, o := range operators {
		why := o.Reason
		if o.Cancelled {
			why += ", cancelled"
		}
		list.Row(o.ID, o.Kind, o.Partition, o.Keyspace, orNumber(o.From), orNumber(o.To),
			orNumber(o.Leader), orNumber(o.Child),
			boundOr(o.SplitAt, o.SplitAtHidden), orNumber(o.Right),
			output.Size(o.Bytes),
			o.Age.Round(time.Second), why, o.Step, o.WaitsFor)
	}
	return list.Flush()
}
