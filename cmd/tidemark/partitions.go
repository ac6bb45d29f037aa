package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
)

func (a *app) partitionsCommand() *cobra.Command {
	return a.printing(a.client(&cobra.Command{
		Use:   "partitions [NAME]",
		Short: "List partitions, their replicas and leaders",
		Long: `List the partitions of the keyspace NAME, or of all keyspaces: hash number and span, epoch
(generation of the span and version of the membership), the nodes with a replica, the leader's node,
number of keys and size, and what is being changed, with the reason. Keys and size are what the
leader reported last, a few seconds ago. A hash number has one partition, or several after splits.`,
		Example: `  tidemark partitions
  tidemark partitions fruit --output json`,
		Args:              arguments("at most a NAME", 0, 1),
		ValidArgsFunction: a.completeKeyspaces,
		RunE: a.verb(func(ctx context.Context, args []string) error {
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			return a.withClient(ctx, func(client *kv.Client) error {
				return a.partitions(ctx, client, name)
			})
		}),
	}))
}

func (a *app) partitions(ctx context.Context, client *kv.Client, keyspace string) error {
	partitions, err := client.Partitions(ctx, keyspace)
	if err != nil {
		return err
	}
	operators, err := client.Operators(ctx)
	if err != nil {
		return err
	}
	changes := make(map[uint64]string, len(operators))
	for _, o := range operators {
		changes[o.Partition] = fmt.Sprintf("%s: %s", o.Step, o.Reason)
	}
	list := a.list(
		output.Column{Name: "id", Number: true}, output.Column{Name: "keyspace"},
		output.Column{Name: "hash", Number: true},
		output.Column{Name: "start"}, output.Column{Name: "end"},
		output.Column{Name: "epoch", Detail: true}, output.Column{Name: "replicas"},
		output.Column{Name: "learners", Programs: true},
		output.Column{Name: "leader", Number: true}, output.Column{Name: "keys", Number: true},
		output.Column{Name: "size", Number: true}, output.Column{Name: "changes"})
	for _, p := range partitions {
		var hash, leader any
		if p.Hash >= 0 {
			hash = p.Hash
		}
		if p.Leader != 0 {
			leader = p.Leader
		}
		nodes := make([]string, 0, len(p.Replicas))
		replicas, learners := make([]uint64, 0, len(p.Replicas)), []uint64{}
		for _, replica := range p.Replicas {
			node := strconv.FormatUint(replica.Node, 10)
			replicas = append(replicas, replica.Node)
			if replica.Learner {
				learners = append(learners, replica.Node)
				node += " (learner)"
			}
			nodes = append(nodes, node)
		}
		list.Row(p.ID, p.Keyspace, hash, bound(p.Start), bound(p.End),
			fmt.Sprintf("%d.%d", p.Generation, p.Membership),
			output.Cell{People: nodes, Programs: replicas}, learners,
			leader, p.LiveKeys, output.Size(p.SizeBytes), orNone(changes[p.ID]))
	}
	return list.Flush()
}

// bound is one end of a partition's span; none at the ends of the keyspace, or of a hash number.
func bound(key []byte) any {
	if len(key) == 0 {
		return nil
	}
	return key
}
