package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

func (a *app) eventsCommand() *cobra.Command {
	var partition, node uint64
	var limit int
	cmd := &cobra.Command{
		Use:   "events",
		Short: "List the actions of placement",
		Long: `List the actions of placement, the newest first: finished changes of replicas and
leaders, splits and merges, with their reasons and durations; nodes that fell silent, came back, or
were taken out; and requests of administrators. The cluster keeps the last ten thousand events.`,
		Example: `  tidemark events
  tidemark events --partition 17
  tidemark events --node 3 --limit 20 --output json`,
		Args: arguments("", 0, 0),
		RunE: a.verb(func(ctx context.Context, _ []string) error {
			if limit < 1 {
				return exit.Usagef("--limit %d: at least 1", limit)
			}
			return a.withClient(ctx, func(client *kv.Client) error {
				events, err := admin.New(client).Events(ctx, partition, node, limit)
				if err != nil {
					return err
				}
				return a.printEvents(events)
			})
		}),
	}
	cmd.Flags().Uint64Var(&partition, "partition", 0, "only those of this partition")
	cmd.Flags().Uint64Var(&node, "node", 0, "only those of this node")
	a.completeFlag(cmd, "partition", partitionsOffered)
	a.completeFlag(cmd, "node", nodesOffered)
	cmd.Flags().IntVar(&limit, "limit", 50, "how many at most")
	return a.client(a.printing(cmd))
}

func (a *app) printEvents(events []admin.Event) error {
	list := a.list(output.Column{Name: "at", Whole: true}, output.Column{Name: "kind"},
		output.Column{Name: "partition", Number: true}, output.Column{Name: "keyspace"},
		output.Column{Name: "from", Number: true, Detail: true},
		output.Column{Name: "to", Number: true, Detail: true},
		output.Column{Name: "leader", Number: true, Detail: true},
		output.Column{Name: "child", Number: true, Detail: true},
		output.Column{Name: "split at", Detail: true},
		output.Column{Name: "right", Number: true, Detail: true},
		output.Column{Name: "took", Detail: true},
		output.Column{Name: "size", Number: true, Detail: true},
		output.Column{Name: "outcome", Sentences: true}, output.Column{Name: "why", Sentences: true},
		output.Column{Name: "score before", Programs: true},
		output.Column{Name: "score after", Programs: true},
		output.Column{Name: "rejected", Programs: true})
	for _, e := range events {
		var took, size any
		if e.Operator != 0 {
			took, size = e.Took.Round(time.Millisecond), output.Size(e.Bytes)
		}
		at := output.Cell{People: e.At.Local().Format(time.DateTime),
			Programs: e.At.UTC().Format(time.RFC3339Nano)}
		list.Row(at, e.Kind, orNumber(e.Partition), orNone(e.Keyspace),
			orNumber(e.From), orNumber(e.To), orNumber(e.Leader), orNumber(e.Child),
			boundOr(e.SplitAt, e.SplitAtHidden),
			orNumber(e.Right), took, size, e.Outcome,
			orNone(e.Reason), orNone(e.ScoreBefore), orNone(e.ScoreAfter), orNone(e.Rejected))
	}
	return list.Flush()
}

// orNumber returns a cell that is empty if the number is 0.
func orNumber(n uint64) any {
	if n == 0 {
		return nil
	}
	return n
}
