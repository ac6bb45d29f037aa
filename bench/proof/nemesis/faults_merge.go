package main

import (
	"bytes"
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// mergePartitions merges neighbouring partitions of any keyspace. Meanwhile servers are killed,
// stopped and cut off, and their disks stall. The fault waits for the end of half of the merges
// before the next merge. During some merges a replica of the partition moves.
func mergePartitions(w *world, random *rand.Rand, _ time.Duration) (*fault, error) {
	f, err := w.migration("partitions merge", -1, random,
		func(ctx context.Context, c *kv.Client) error {
			merges, moves := 0, 0
			for range 2 + random.IntN(8) {
				partitions, err := admin.New(c).Partitions(ctx, "")
				if err != nil {
					return err
				}
				left := withNeighbours(partitions)
				if len(left) == 0 {
					break
				}
				p := left[random.IntN(len(left))]
				if random.IntN(4) == 0 && moveOne(ctx, c, p, random) {
					moves++
				}
				// The core may refuse a merge because a change of the partition is under way. This is no
				// failure.
				m, err := admin.New(c).MergePartition(ctx, p.ID)
				if err != nil {
					continue
				}
				merges++
				if random.IntN(2) == 0 {
					awaitOperator(ctx, c, m.Operator)
				}
			}
			w.journal.note("%d partitions begin to merge with their neighbours, and %d replicas to move",
				merges, moves)
			return nil
		}, whole)
	if err != nil {
		return nil, err
	}
	w.harry(f, random)
	return f, nil
}

// withNeighbours returns the partitions with a right neighbour that they can merge with.
func withNeighbours(partitions []admin.PartitionInfo) (left []admin.PartitionInfo) {
	all := slices.SortedFunc(slices.Values(partitions), func(a, b admin.PartitionInfo) int {
		return cmp.Or(cmp.Compare(a.Keyspace, b.Keyspace), cmp.Compare(a.Hash, b.Hash),
			bytes.Compare(a.Start, b.Start))
	})
	for i := 1; i < len(all); i++ {
		if p := all[i-1]; p.Keyspace == all[i].Keyspace && p.Hash == all[i].Hash {
			left = append(left, p)
		}
	}
	return left
}

// moveOne moves a replica of a partition to a node without a replica, and reports whether the core
// has accepted the move.
func moveOne(ctx context.Context, c *kv.Client, p admin.PartitionInfo, random *rand.Rand) bool {
	nodes, err := admin.New(c).Nodes(ctx)
	if err != nil {
		return false
	}
	for _, n := range nodes {
		if n.Alive && n.Status == admin.NodeActive && !slices.ContainsFunc(p.Replicas,
			func(r admin.ReplicaInfo) bool { return r.Node == n.ID }) {
			return admin.New(c).MoveReplica(ctx, p.ID, p.Replicas[random.IntN(len(p.Replicas))].Node,
				n.ID) == nil
		}
	}
	return false
}

// awaitOperator waits until an operator has ended, but no longer than a merge may take.
func awaitOperator(ctx context.Context, c *kv.Client, id uint64) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for {
		all, err := admin.New(c).Operators(ctx)
		if err == nil && !slices.ContainsFunc(all,
			func(o admin.OperatorInfo) bool { return o.ID == id }) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(50 * ms):
		}
	}
}

// harry makes stops, cuts and stalled disks happen to servers during a migration, besides kills.
func (w *world) harry(f *fault, random *rand.Rand) {
	kill, end := f.again, f.end
	var last *fault
	over := func() error {
		ended := last
		if last = nil; ended != nil && ended.end != nil {
			return ended.end()
		}
		return nil
	}
	f.again = func() (time.Duration, error) {
		if err := over(); err != nil {
			return 0, err
		}
		hold := between(random, 500*ms, 6*time.Second)
		begin := []func(*world, *rand.Rand, time.Duration) (*fault, error){nil, nil, stopServer,
			isolate, cutBothWays, pauseNode, stopDisk}
		if have(w.disks)&needFreeze == 0 {
			begin = begin[:len(begin)-1]
		}
		what := begin[random.IntN(len(begin))]
		if what == nil {
			return kill()
		}
		var err error
		if last, err = what(w, random, hold); err != nil {
			return 0, err
		}
		w.journal.note("meanwhile %s", last.what)
		return hold, nil
	}
	f.end = func() error {
		if err := over(); err != nil {
			return err
		}
		return end()
	}
}
