package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// move moves replicas of a partition to nodes that have no replica of it, several in turn, while
// other faults happen. Some moves are cancelled.
type move struct {
	// Partition is an index into the partitions, and Out an index into the replicas, modulo their
	// numbers.
	Partition, Out int
	Times          int `most:"1000"`
	Every          time.Duration
	// Cancel is the time from a move's begin to its cancellation; 0: moves are not cancelled.
	Cancel time.Duration
}

var _ = register("move", 18, 0, func(d *Dice) move {
	m := move{Partition: d.IntN(100), Out: d.IntN(100), Times: d.Of(1, 1, 2, 4, 8),
		Every: d.Between(200*time.Millisecond, 10*time.Second)}
	if d.Of(0, 0, 0, 1) == 1 {
		m.Cancel = d.Between(time.Millisecond, 8*time.Second)
	}
	return m
})

// movePatience is how long the fault waits for the core's answer.
const movePatience = 20 * time.Second

// Begin implements Effect. A goroutine calls the core, because the core may be cut off.
func (f move) Begin(w *World) (string, func() string) {
	w.asking(func(ctx context.Context, client *kv.Client) {
		for i := range f.Times {
			if i > 0 && !sleep(ctx, f.Every) {
				return
			}
			w.Event("%s", f.one(ctx, w, client, i))
		}
	})
	return "replicas of a partition begin to move", nil
}

// one moves one replica, and describes the move.
func (f move) one(ctx context.Context, w *World, client *kv.Client, turn int) string {
	ctx, cancel := context.WithTimeout(ctx, movePatience)
	defer cancel()
	partitions, err := admin.New(client).Partitions(ctx, "")
	if err != nil || len(partitions) == 0 {
		return fmt.Sprintf("no replica moves: %v", err)
	}
	nodes, err := admin.New(client).Nodes(ctx)
	if err != nil {
		return fmt.Sprintf("no replica moves: %v", err)
	}
	p := partitions[f.Partition%len(partitions)]
	var free []uint64
	for _, n := range nodes {
		if n.Alive && !slices.ContainsFunc(p.Replicas,
			func(r admin.ReplicaInfo) bool { return r.Node == n.ID }) {
			free = append(free, n.ID)
		}
	}
	if len(free) == 0 {
		return fmt.Sprintf("partition %d stays: no other node is there", p.ID)
	}
	from, to := p.Replicas[(f.Out+turn)%len(p.Replicas)].Node, free[(f.Out+turn)%len(free)]
	if err := admin.New(client).MoveReplica(ctx, p.ID, from, to); err != nil {
		return fmt.Sprintf("partition %d does not move: %v", p.ID, err)
	}
	w.count("moves")
	if f.Cancel > 0 && sleep(ctx, f.Cancel) {
		err := admin.New(client).CancelOperator(ctx, p.ID)
		return fmt.Sprintf("partition %d moves from node %d to node %d, and is to stay after %s: %v",
			p.ID, from, to, f.Cancel, err)
	}
	return fmt.Sprintf("partition %d moves from node %d to node %d", p.ID, from, to)
}

// sleep waits, and returns false if the context ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// checkMoves waits until no move is under way. When the cluster is whole again, all moves must come
// to an end. A node that lost its disk does not return, and a move from or to that node may wait
// for ever.
func (w *World) checkMoves(ctx context.Context) {
	client, err := w.Cluster.Open(ctx)
	if err != nil {
		w.Violation("looking for moves: %v", err)
		return
	}
	defer client.Close()
	var left []admin.OperatorInfo
	for ctx.Err() == nil {
		if left, err = admin.New(client).Operators(ctx); err == nil && len(left) == 0 {
			return
		}
		for _, o := range left {
			if w.anyWiped() {
				_ = admin.New(client).CancelOperator(ctx, o.Partition)
			}
		}
		if w.anyWiped() && err == nil {
			return
		}
		sleep(ctx, 500*time.Millisecond)
	}
	w.Violation("the cluster is whole again, and moves do not end: %+v %v", left, err)
}

// anyWiped says whether a server has lost its disk.
func (w *World) anyWiped() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.mu.wiped) > 0
}
