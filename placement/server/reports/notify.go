package reports

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Orders are sent in the answers to heartbeats. So that orders need not wait for the next
// heartbeat, the node that leads a partition is notified when an operator of the partition is
// recorded or cancelled. The node then sends a heartbeat. Later steps need no notification: the
// node reports a finished step at once, and the answer has the next order. The exception is a
// merge: its next step may be for the leader of the other partition, and then the node of that
// leader is notified. A notification may be lost. It does no harm if there is no order, because
// nodes limit how often they send heartbeats.

// maxWaking is the number of nodes that are notified concurrently. Each node is notified by one
// call at a time.
const maxWaking = 16

// wakeForLocked notifies the nodes that may have an order of an operator, except for the node
// `but`. A merge has orders for the leaders of two partitions.
func (s *Reports) wakeForLocked(o *serverpb.Operator, but keys.NodeID) {
	for _, id := range [...]uint64{o.Partition, o.Right} {
		if id := keys.PartitionID(id); id != 0 && s.mu.leaders[id] != but {
			s.wakeLocked(id)
		}
	}
}

// wakeMergesLocked is called when a node reports news of a partition. If the partition is one of
// two that merge, the next step may be for the leader of the other one. The reporting node gets its
// own step in the answer.
func (s *Reports) wakeMergesLocked(id keys.PartitionID, reporter keys.NodeID) {
	for _, o := range s.mu.operators {
		if steps.Merges(o) && (o.Partition == uint64(id) || o.Right == uint64(id)) {
			s.wakeForLocked(o, reporter)
		}
	}
}

// wakeLocked has the node that leads a partition notified of orders.
func (s *Reports) wakeLocked(id keys.PartitionID) {
	node := s.mu.leaders[id]
	if node == 0 {
		return // the node will report, and the answer has the order
	}
	s.mu.wake[node] = struct{}{}
	s.signalWoken()
}

// WakeNode has a node notified, so that it sends a heartbeat.
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

// Notify calls tell for nodes that have orders, until ctx ends. It calls tell concurrently for
// several nodes, and for each node once at a time. It returns after all calls of tell have
// returned.
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

// toWake returns a node that must be notified and is not being notified. It returns 0 if there is
// none.
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

// wasTold records that the notification of a node has ended.
func (s *Reports) wasTold(id keys.NodeID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.waking, id)
	if len(s.mu.wake) > 0 {
		s.signalWoken()
	}
}
