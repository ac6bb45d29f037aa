package sim

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/tidemarkdb/tidemark/kv"
)

// checkStates compares what each server has on its disk with what its replicas say of it.
func (w *World) checkStates(ctx context.Context) {
	for i := range w.Cluster.Servers() {
		p := w.Cluster.Process(i)
		if p == nil {
			continue
		}
		problems, err := p.CheckState(ctx)
		if err != nil {
			w.Violation("reading the state of server %d: %v", i, err)
		}
		for _, problem := range problems {
			w.Violation("server %d: %s", i, problem)
		}
	}
}

// checkTable sees to it that each key of each keyspace is in exactly one partition.
func (w *World) checkTable(ctx context.Context) {
	client, err := w.Cluster.Open(ctx)
	if err != nil {
		w.Violation("looking at the partitions: %v", err)
		return
	}
	defer client.Close()
	all, err := client.Partitions(ctx, "")
	if err != nil {
		w.Violation("looking at the partitions: %v", err)
		return
	}
	slices.SortFunc(all, func(a, b kv.PartitionInfo) int {
		return cmp.Or(cmp.Compare(a.Keyspace, b.Keyspace), cmp.Compare(a.Hash, b.Hash),
			bytes.Compare(a.Start, b.Start))
	})
	for i, p := range all {
		first := i == 0 || all[i-1].Keyspace != p.Keyspace || all[i-1].Hash != p.Hash
		last := i+1 == len(all) || all[i+1].Keyspace != p.Keyspace || all[i+1].Hash != p.Hash
		switch {
		case first && len(p.Start) > 0:
			w.Violation("no partition has what comes before %q in keyspace %s", p.Start, p.Keyspace)
		case last && len(p.End) > 0:
			w.Violation("no partition has what comes from %q on in keyspace %s", p.End, p.Keyspace)
		case !last && !bytes.Equal(p.End, all[i+1].Start):
			w.Violation("partition %d ends at %q, and partition %d begins at %q", p.ID, p.End,
				all[i+1].ID, all[i+1].Start)
		}
	}
}
