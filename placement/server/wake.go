package server

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Orders are in the answers to heartbeats. So that they need not wait for the next one, the node
// that leads a partition is told when an operator of the partition is recorded or taken back, and
// sends a heartbeat. The steps after the first need no such hint: what was carried out is reported
// at once, and the answer has the next order; only of a merge the next one may be for the leader of
// the other partition, whose node is told then. A hint may be lost, and does no harm when there is
// no order: nodes bound how often they send heartbeats.

const (
	// maxWaking is how many nodes are told at a time, each of them once, and wakeTimeout for how long
	// each.
	maxWaking   = 16
	wakeTimeout = time.Second
)

// wakeForLocked has the nodes told that may have an order of an operator, but for one: a merge has
// orders for the leaders of two partitions.
func (s *soft) wakeForLocked(o *serverpb.Operator, but keys.NodeID) {
	for _, id := range [...]uint64{o.Partition, o.Right} {
		if id := keys.PartitionID(id); id != 0 && s.mu.leaders[id] != but {
			s.wakeLocked(id)
		}
	}
}

// wakeMergesLocked is for a partition of which a node reports something new: if it is one of two
// that merge, the next step may be for the leader of the other one. The node itself hears of the
// step with the answer.
func (s *soft) wakeMergesLocked(id keys.PartitionID, reporter keys.NodeID) {
	for _, o := range s.mu.operators {
		if steps.Merges(o) && (o.Partition == uint64(id) || o.Right == uint64(id)) {
			s.wakeForLocked(o, reporter)
		}
	}
}

// wakeLocked has the node that leads a partition told that there are orders.
func (s *soft) wakeLocked(id keys.PartitionID) {
	node := s.mu.leaders[id]
	if node == 0 {
		return // it will report, and the answer has the order
	}
	s.mu.wake[node] = struct{}{}
	s.signalWoken()
}

// wakeNode has a node told to send a heartbeat.
func (s *soft) wakeNode(id keys.NodeID) {
	s.mu.Lock()
	s.mu.wake[id] = struct{}{}
	s.mu.Unlock()
	s.signalWoken()
}

func (s *soft) signalWoken() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// toWake takes a node that is to be told and is not being told; 0: there is none.
func (s *soft) toWake() keys.NodeID {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.mu.wake {
		if _, being := s.mu.waking[id]; !being {
			delete(s.mu.wake, id)
			s.mu.waking[id] = struct{}{}
			return id
		}
	}
	return 0
}

// wasTold says that a node can be told again.
func (s *soft) wasTold(id keys.NodeID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.waking, id)
	if len(s.mu.wake) > 0 {
		s.signalWoken()
	}
}

// wakeNodes tells nodes of orders, from New to Close.
func (s *Server) wakeNodes() {
	places := make(chan struct{}, maxWaking)
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.soft.woken:
		}
		for id := s.soft.toWake(); id != 0; id = s.soft.toWake() {
			select {
			case places <- struct{}{}:
			case <-s.ctx.Done():
				return
			}
			s.running.Go(func() {
				defer func() { <-places }()
				defer s.soft.wasTold(id)
				s.wakeNode(id)
			})
		}
	}
}

// wakeNode tells a node of orders, if it is alive.
func (s *Server) wakeNode(id keys.NodeID) {
	v := s.store.Stale()
	n := &clusterpb.Node{}
	if revision, err := meta.Load(v, meta.NodeKey(id), n); err != nil || revision == 0 {
		return
	}
	if alive, err := v.Get(meta.AliveKey(id)); err != nil || alive == nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, wakeTimeout)
	defer cancel()
	if err := s.config.Wake(ctx, n.Address, id); err != nil {
		s.config.Logger.Debug("a node is not told of orders; it asks with its next heartbeat",
			"node", id, "error", err)
	}
}
