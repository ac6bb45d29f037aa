package reports

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Orders are in the answers to heartbeats. So that they need not wait for the next heartbeat, the
// node that leads a partition is told when an operator of the partition is recorded or taken back,
// and sends a heartbeat. Later steps need no such hint: a finished step is reported at once, and
// the answer has the next order. Only the next step of a merge may be for the leader of the other
// partition, whose node is told then. A hint may be lost, and does no harm when there is no order:
// nodes bound how often they send heartbeats.

// maxWaking is how many nodes are told at a time, each of them once.
const maxWaking = 16

// wakeForLocked tells the nodes that may have an order of an operator, except for the node but: a
// merge has orders for the leaders of two partitions.
func (s *Reports) wakeForLocked(o *serverpb.Operator, but keys.NodeID) {
	for _, id := range [...]uint64{o.Partition, o.Right} {
		if id := keys.PartitionID(id); id != 0 && s.mu.leaders[id] != but {
			s.wakeLocked(id)
		}
	}
}

// wakeMergesLocked is called when a node reports something new of a partition: if it is one of two
// that merge, the next step may be for the leader of the other one. The reporting node hears of the
// step in the answer.
func (s *Reports) wakeMergesLocked(id keys.PartitionID, reporter keys.NodeID) {
	for _, o := range s.mu.operators {
		if steps.Merges(o) && (o.Partition == uint64(id) || o.Right == uint64(id)) {
			s.wakeForLocked(o, reporter)
		}
	}
}

// wakeLocked has the node that leads a partition told that there are orders.
func (s *Reports) wakeLocked(id keys.PartitionID) {
	node := s.mu.leaders[id]
	if node == 0 {
		return // it will report, and the answer has the order
	}
	s.mu.wake[node] = struct{}{}
	s.signalWoken()
}

// WakeNode has a node told to send a heartbeat.
func (s *Reports) WakeNode(id keys.NodeID) {
	s.mu.Lock()
	s.mu.wake[id] = struct{}{}
	s.mu.Unlock()
	s.signalWoken()
}

func (s *Reports) signalWoken() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// Notify calls tell for nodes that have orders, for several at a time and for each once at a time,
// until ctx ends. It returns when all calls of tell have.
func (s *Reports) Notify(ctx context.Context, tell func(context.Context, keys.NodeID)) {
	var telling errgroup.Group
	telling.SetLimit(maxWaking)
	defer func() { _ = telling.Wait() }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.woken:
		}
		for id := s.toWake(); id != 0; id = s.toWake() {
			telling.Go(func() error {
				defer s.wasTold(id)
				tell(ctx, id)
				return nil
			})
		}
	}
}

// toWake returns a node that has to be told and is not being told; 0: there is none.
func (s *Reports) toWake() keys.NodeID {
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
func (s *Reports) wasTold(id keys.NodeID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.waking, id)
	if len(s.mu.wake) > 0 {
		s.signalWoken()
	}
}
