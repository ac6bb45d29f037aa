package node

import (
	"context"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/node/task"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
)

// A leader reports a change of its descriptor when the change is settled: an entry after the one
// that made it is applied (replica.Replica.Settled). An order appends such an entry, but orders are
// not the only changes of a descriptor: a freeze ends, or an attempt to merge is cancelled. And the
// entry of an order may fail, or the leader that was to append it may be gone. In an idle partition
// no other entry would come, and the core would continue from an old descriptor.
//
// INVARIANT: a leader whose descriptor is neither settled nor frozen appends an entry. So the core
// hears of every change, whatever made it, whether or not the partition is written to.

const (
	// settlePause is how long settling waits for the entry of a write, of an order or of a new
	// leader; settleAgain is the pause after a failed attempt.
	settlePause = 100 * time.Millisecond
	settleAgain = time.Second
	// settlers bounds the partitions that are settled at a time.
	settlers = 4
)

// settling settles the descriptors of partitions that are led here.
type settling struct {
	node *Node
	wake task.Signal
	mu   struct {
		sync.Mutex
		due map[*hosted.Replica]struct{}
	}
}

func (s *settling) init(n *Node) {
	s.node, s.wake = n, task.NewSignal()
	s.mu.due = make(map[*hosted.Replica]struct{})
}

// unsettled reports whether a replica leads with a descriptor that it does not report yet. A frozen
// partition evaluates nothing, and its next change ends the freeze, or the partition.
func unsettled(h *hosted.Replica) bool {
	return h.Leading.Load() && !h.Removed.Load() && !h.Replica.Settled() &&
		h.Replica.Descriptor().GetFrozen() == nil
}

// add schedules a partition for settling, if it needs it. The set is bounded by the replicas of the
// node.
func (s *settling) add(h *hosted.Replica) {
	if !unsettled(h) {
		return
	}
	s.mu.Lock()
	s.mu.due[h] = struct{}{}
	s.mu.Unlock()
	s.wake.Send()
}

// run settles partitions until the context ends.
func (s *settling) run(ctx context.Context) {
	var working sync.WaitGroup
	defer working.Wait()
	places := make(chan struct{}, settlers)
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		if backoff.Sleep(ctx, settlePause) != nil {
			return
		}
		s.mu.Lock()
		due := s.mu.due
		s.mu.due = make(map[*hosted.Replica]struct{})
		s.mu.Unlock()
		for h := range due {
			if !unsettled(h) {
				continue
			}
			select {
			case places <- struct{}{}:
			case <-ctx.Done():
				return
			}
			working.Go(func() {
				defer func() { <-places }()
				s.settle(ctx, h)
			})
		}
	}
}

// settle appends an entry, and has the change reported. It is repeated after a failure.
func (s *settling) settle(ctx context.Context, h *hosted.Replica) {
	limited, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	if err := h.Replica.Writes().Fence(limited); err != nil {
		if ctx.Err() == nil {
			s.node.log.Warn("a change of a partition cannot be reported yet", "partition", h.ID, "error",
				err)
			_ = backoff.Sleep(ctx, settleAgain)
			s.add(h)
		}
		return
	}
	s.node.reports.CarriedOut(h)
}

// outdated notes an order that is for an earlier descriptor than the partition has: the core lacks
// the present one. The descriptor is reported when it is settled, or again.
func (s *settling) outdated(h *hosted.Replica) {
	if s.add(h); !unsettled(h) {
		s.node.reports.Changed(h)
	}
}
