package sim

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// merge merges partitions with their right neighbours, several in turn, while other faults happen.
type merge struct {
	// Boundary is an index into the boundaries between neighbours, modulo their number.
	Boundary int
	Times    int `most:"1000"`
	Every    time.Duration
	// Cancel is the time from a merge's begin to its cancellation; 0: merges are not cancelled.
	Cancel time.Duration
}

var mergers = register("merge", 0, 0, func(d *Dice) merge {
	m := merge{Boundary: d.IntN(100), Times: d.Of(1, 2, 2, 4, 8),
		Every: d.Between(50*time.Millisecond, 4*time.Second)}
	if d.IntN(8) == 0 {
		m.Cancel = d.Between(time.Millisecond, time.Second)
	}
	return m
})

// Begin implements Effect. A goroutine calls the core, because the core may be cut off.
func (f merge) Begin(w *World) (string, func() string) {
	w.asking(func(ctx context.Context, client *kv.Client) {
		for i := range f.Times {
			if i > 0 && !sleep(ctx, f.Every) {
				return
			}
			w.Event("%s", f.one(ctx, w, client, i))
		}
	})
	return "neighbours begin to merge", nil
}

// one merges two partitions, and describes the merge.
func (f merge) one(ctx context.Context, w *World, client *kv.Client, turn int) string {
	ctx, cancel := context.WithTimeout(ctx, movePatience)
	defer cancel()
	partitions, err := admin.New(client).Partitions(ctx, "")
	if err != nil {
		return fmt.Sprintf("no partitions merge: %v", err)
	}
	between := boundaries(partitions)
	if len(between) == 0 {
		return "no partitions merge: none has a neighbour"
	}
	left := between[(f.Boundary+turn*7)%len(between)]
	m, err := admin.New(client).MergePartition(ctx, left.ID)
	if err != nil {
		return fmt.Sprintf("partition %d does not merge with its right neighbour: %v", left.ID, err)
	}
	w.countMerge(m)
	if f.Cancel > 0 && sleep(ctx, f.Cancel) {
		err := admin.New(client).CancelOperator(ctx, m.Partition)
		return fmt.Sprintf("partition %d merges with partition %d, and is not to after %s: %v",
			m.Partition, m.Right, f.Cancel, err)
	}
	return fmt.Sprintf("partition %d merges with partition %d", m.Partition, m.Right)
}

// countMerge counts a requested merge, once.
func (w *World) countMerge(m admin.Merge) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.asked < m.Operator {
		w.mu.asked = m.Operator
		w.mu.counts["merges"]++
	}
}

// boundaries returns the partitions that have a right neighbour to merge with.
func boundaries(partitions []admin.PartitionInfo) (left []admin.PartitionInfo) {
	all := inOrder(partitions)
	for i := 1; i < len(all); i++ {
		if p := all[i-1]; p.Keyspace == all[i].Keyspace && p.Hash == all[i].Hash {
			left = append(left, p)
		}
	}
	return left
}

// inOrder sorts partitions by their keys.
func inOrder(partitions []admin.PartitionInfo) []admin.PartitionInfo {
	all := slices.Clone(partitions)
	slices.SortFunc(all, func(a, b admin.PartitionInfo) int {
		return cmp.Or(cmp.Compare(a.Keyspace, b.Keyspace), cmp.Compare(a.Hash, b.Hash),
			bytes.Compare(a.Start, b.Start))
	})
	return all
}

// merging is a fault that merges partitions, and faults that come at the worst moments of merges.
func merging(d *Dice, at time.Duration) []Fault {
	faults := []Fault{mergers.at(d, at)}
	when := at + d.Between(0, 500*time.Millisecond)
	switch d.IntN(16) {
	case 0:
		faults = append(faults, fault(when, d.Between(20*time.Millisecond, 6*time.Second),
			crash{d.Server(), d.Of(0, 50, 100)}))
	case 1:
		faults = append(faults, fault(when, d.Between(20*time.Millisecond, 4*time.Second),
			stop{d.Server()}))
	case 2:
		faults = append(faults, fault(when, d.Between(20*time.Millisecond, 2*time.Second),
			powerCut{d.Of(0, 50, 100), d.Between(0, 100*time.Millisecond)}))
	case 3:
		faults = append(faults, kinds["transfer"].at(d, when))
	case 4:
		faults = append(faults, kinds["cut"].at(d, when))
	case 5:
		faults = append(faults, kinds["move"].at(d, when))
	case 6:
		faults = append(faults, splits.at(d, when))
	case 7:
		faults = append(faults, mergers.at(d, when))
	case 8, 9, 10, 11, 12, 13:
		// The fault waits for the moment of a merge.
		f := atMerges.at(d, at)
		if f.Effect.(atMerge).How == "lose" {
			f.For = d.Between(5*time.Second, 45*time.Second)
		}
		faults = append(faults, f)
	}
	return faults
}
