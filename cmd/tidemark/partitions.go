package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

func (a *app) partitionsCommand() *cobra.Command {
	var order partitionOrder
	var latency bool
	cmd := &cobra.Command{
		Use:   "partitions [NAME]",
		Short: "List partitions, their replicas and leaders",
		Long: `List the partitions of the keyspace NAME, or of all keyspaces: hash number and span,
epoch (generation of the span and version of the membership), the nodes with a replica, the leader's
node, number of keys and size, and the change under way, with the reason. Keys and size are from the
leader's last report, a few seconds ago. A hash number has one partition, or several after splits.

--top load, --top size, --top reads or --top writes lists the partitions with the largest value
first, as many as --limit says, with columns for the load: the processors that the partition costs
its leader, over one and over five minutes, and requests and bytes for each second of the last
minute.

--latency lists the nodes instead, and their distance from here: by locality, if --locality says
where this program runs, and by the time that small requests take. Reads use these distances to
choose the nearest replica (get --nearest).`,
		Example: `  tidemark partitions
  tidemark partitions --top load
  tidemark partitions fruit --top size --limit 5
  tidemark partitions fruit --output json
  tidemark partitions --latency --locality region=eu,zone=a`,
		Args:              arguments("at most a NAME", 0, 1),
		ValidArgsFunction: a.completeKeyspaces,
		RunE: a.verb(func(ctx context.Context, args []string) error {
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			if err := order.validate(); err != nil {
				return err
			}
			if latency && (name != "" || order.by != "") {
				return exit.Usagef("--latency is about nodes: leave out NAME and --top")
			}
			return a.withClient(ctx, func(client *kv.Client) error {
				if latency {
					return a.latencies(ctx, client)
				}
				return a.partitions(ctx, client, name, order)
			})
		}),
	}
	cmd.Flags().StringVar(&order.by, "top", "",
		"those with the most first: load, size, reads or writes")
	cmd.Flags().IntVar(&order.limit, "limit", 20, "with --top: how many at most")
	cmd.Flags().BoolVar(&latency, "latency", false, "how far away the nodes are from here")
	a.localityFlag(cmd)
	return a.printing(a.client(cmd))
}

// partitionOrder is the order in which partitions are listed.
type partitionOrder struct {
	by    string
	limit int
}

// tops are the values by which partitions can be ordered.
var tops = map[string]func(p *admin.PartitionInfo) float64{
	"load":   func(p *admin.PartitionInfo) float64 { return p.Minute.Load },
	"size":   func(p *admin.PartitionInfo) float64 { return float64(p.SizeBytes) },
	"reads":  func(p *admin.PartitionInfo) float64 { return float64(p.Minute.Reads) },
	"writes": func(p *admin.PartitionInfo) float64 { return float64(p.Minute.Writes) },
}

func (o *partitionOrder) validate() error {
	switch {
	case o.by == "":
		return nil
	case tops[o.by] == nil:
		return exit.Usagef("--top %s: want load, size, reads or writes", o.by)
	case o.limit < 1:
		return exit.Usagef("--limit %d: at least 1", o.limit)
	}
	return nil
}

// apply orders partitions, and drops those beyond the limit.
func (o *partitionOrder) apply(all []admin.PartitionInfo) []admin.PartitionInfo {
	of := tops[o.by]
	if of == nil {
		return all
	}
	slices.SortStableFunc(all, func(p, q admin.PartitionInfo) int {
		return cmp.Compare(of(&q), of(&p))
	})
	return all[:min(len(all), o.limit)]
}

func (a *app) partitions(ctx context.Context, client *kv.Client, keyspace string,
	order partitionOrder) error {
	partitions, err := admin.New(client).Partitions(ctx, keyspace)
	if err != nil {
		return err
	}
	partitions = order.apply(partitions)
	operators, err := admin.New(client).Operators(ctx)
	if err != nil {
		return err
	}
	return a.printPartitions(partitions, operators, order.by != "")
}

// printPartitions lists partitions and their operators; loads: the table shows their load.
func (a *app) printPartitions(partitions []admin.PartitionInfo, operators []admin.OperatorInfo,
	loads bool) error {
	changes := make(map[uint64]string, len(operators))
	for _, o := range operators {
		changes[o.Partition] = fmt.Sprintf("%s: %s", o.Step, o.Reason)
		if o.Right != 0 {
			changes[o.Right] = fmt.Sprintf("is merged with partition %d: %s", o.Partition, o.Step)
		}
	}
	for _, p := range partitions {
		if p.FrozenFor != 0 {
			changes[p.ID] = fmt.Sprintf("frozen: partition %d is about to consume it", p.FrozenFor)
		}
	}
	list := a.list(
		output.Column{Name: "id", Number: true}, output.Column{Name: "keyspace"},
		output.Column{Name: "hash", Number: true},
		output.Column{Name: "start"}, output.Column{Name: "end", Detail: true},
		output.Column{Name: "epoch", Detail: true}, output.Column{Name: "replicas", Detail: loads},
		output.Column{Name: "learners", Programs: true},
		output.Column{Name: "leader", Number: true},
		output.Column{Name: "keys", Number: true, Detail: loads},
		output.Column{Name: "size", Number: true},
		output.Column{Name: "live_bytes", Programs: true},
		output.Column{Name: "load", Number: true, Programs: !loads},
		output.Column{Name: "load_5m", Number: true, Detail: true, Programs: !loads},
		output.Column{Name: "reads", Number: true, Programs: !loads},
		output.Column{Name: "writes", Number: true, Programs: !loads},
		output.Column{Name: "read_bytes", Number: true, Detail: true, Programs: !loads},
		output.Column{Name: "written_bytes", Number: true, Detail: true, Programs: !loads},
		output.Column{Name: "measured_seconds", Programs: true},
		output.Column{Name: "frozen_for", Programs: true},
		output.Column{Name: "boundary_asked", Programs: true},
		output.Column{Name: "bounds_hidden", Programs: true},
		output.Column{Name: "changes", Sentences: true})
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
		list.Row(p.ID, p.Keyspace, hash, boundOr(p.Start, p.StartHidden), boundOr(p.End, p.EndHidden),
			fmt.Sprintf("%d.%d", p.Generation, p.Membership),
			output.Cell{People: nodes, Programs: replicas}, learners,
			leader, p.LiveKeys, output.Size(p.SizeBytes), p.LiveBytes,
			loadCell(p.Minute.Load), loadCell(p.FiveMinutes.Load), p.Minute.Reads, p.Minute.Writes,
			output.Size(p.Minute.ReadBytes), output.Size(p.Minute.WrittenBytes),
			uint64(p.Measured.Seconds()), orNumber(p.FrozenFor), p.BoundaryAsked,
			p.StartHidden || p.EndHidden, orNone(changes[p.ID]))
	}
	return list.Flush()
}

// loadCell returns a cell with a number of processors.
func loadCell(processors float64) output.Cell {
	return output.Cell{People: fmt.Sprintf("%.2f", processors), Programs: processors}
}

// boundOr returns the cell of a bound, or a mark that the bound is hidden from this user.
func boundOr(key []byte, hidden bool) any {
	if hidden {
		return output.Cell{People: "(hidden)"}
	}
	return bound(key)
}

// bound returns the cell of one end of a partition's span; empty at the ends of the keyspace or of
// a hash number.
func bound(key []byte) any {
	if len(key) == 0 {
		return nil
	}
	return key
}
