package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

func (a *app) mergeCommand() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "merge PARTITION",
		Short: "Merge a partition with its right neighbour",
		Long: `Merge a partition with its right neighbour: the partition that begins where it ends,
in the same keyspace and hash number. The partition keeps its number; the number of the neighbour is
not used again. If the replicas are on different nodes, those of the smaller partition are moved
first. Reads and writes go on, except for a moment in the neighbour.

Small and calm neighbours merge by themselves, unless the keyspace has --no-auto. This command
merges other neighbours too, and removes boundaries of "tidemark split", or with which the keyspace
was created. It is refused if the result is so large that it would split again at once.

The merge is recorded in the consistent core, and goes on whether this command waits for it or not;
"tidemark operators" shows it. Until the merge is carried out, "tidemark move PARTITION --cancel"
cancels it.`,
		Example: `  tidemark merge 17
  tidemark merge 17 --wait`,
		Args:              arguments("PARTITION", 1, 1),
		ValidArgsFunction: a.complete(partitionsOffered),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			partition, err := parsePartition(args[0])
			if err != nil {
				return err
			}
			return a.withClient(ctx, func(client *kv.Client) error {
				merge, err := admin.New(client).MergePartition(ctx, partition)
				if err != nil {
					return err
				}
				outcome := "under way"
				if wait {
					if err := a.awaitMerge(ctx, client, merge); err != nil {
						return err
					}
					outcome = "merged"
				}
				list := a.list(output.Column{Name: "operator", Number: true},
					output.Column{Name: "partition", Number: true},
					output.Column{Name: "right", Number: true}, output.Column{Name: "outcome"})
				list.Row(merge.Operator, merge.Partition, merge.Right, outcome)
				return list.Flush()
			})
		}),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the table has one partition for both")
	return a.client(a.printing(cmd))
}

// awaitMerge shows the progress of a merge on standard error until it has ended, and fails if the
// neighbour still exists.
func (a *app) awaitMerge(ctx context.Context, client *kv.Client, m admin.Merge) error {
	mine := func(o admin.OperatorInfo) bool { return o.ID == m.Operator }
	if err := a.followOperators(ctx, client, mine); err != nil {
		return err
	}
	all, err := persist(ctx, func() ([]admin.PartitionInfo,
		error) {
		return admin.New(client).Partitions(ctx, "")
	})
	if err != nil {
		return err
	}
	there := func(id uint64) bool {
		return slices.ContainsFunc(all, func(p admin.PartitionInfo) bool { return p.ID == id })
	}
	if there(m.Partition) && !there(m.Right) {
		return nil
	}
	outcome, err := a.lastOutcome(ctx, client, m.Partition)
	if err != nil {
		return err
	}
	return fmt.Errorf("partition %d was not merged with partition %d: %s",
		m.Partition, m.Right, outcome)
}
