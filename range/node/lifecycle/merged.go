package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/node/splitrecovery"
	"github.com/tidemarkdb/tidemark/range/node/task"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/range/replica"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// BuryPause is the least time between two flushes of the state after merges.
	BuryPause = 10 * time.Second
	// keptMerges bounds the merged partitions of which a node remembers their successors.
	keptMerges = 4096
)

// Merged holds the replicas whose partitions were merged into others. Each is closed, and its log
// is removed when the merge is durable: until then a crash may take the merge back, and it is
// applied again.
type Merged struct {
	node *Lifecycle
	wake task.Signal
	// burying is a lock for the goroutine that closes replicas or removes logs; it may be held
	// while others sleep.
	burying            chan struct{}
	merged, bySnapshot prometheus.Counter
	mu                 struct {
		sync.Mutex
		// ended are replicas that were consumed and are still open; closed are those whose logs are
		// still there.
		ended  []*hosted.Replica
		closed []raftlog.Identity
		// by maps merged partitions to their successors; order has them in the order of the merges.
		by    map[keys.PartitionID]*clusterpb.Partition
		order []keys.PartitionID
	}
}

func (m *Merged) init(n *Lifecycle) {
	m.node, m.wake, m.burying = n, task.NewSignal(), make(chan struct{}, 1)
	m.mu.by = make(map[keys.PartitionID]*clusterpb.Partition)
	m.merged = n.Metrics.Counter("replicas_merged_total",
		"Replicas that became a part of others by merges.")
	m.bySnapshot = n.Metrics.Counter("replicas_merged_by_snapshot_total",
		"Replicas that became a part of others by snapshots from after the merges.")
}

// Right finds the replica of a partition that is being consumed here; see replica.Node.Right.
func (m *Merged) Right(right *clusterpb.Partition, index uint64) (replica.Right, error) {
	n := m.node
	if b := &n.Children; b.replaying {
		return b.directory.Right(right)
	}
	h := m.opened(keys.PartitionID(right.GetId()))
	switch {
	case h == nil || h.Removed.Load():
		return nil, errors.New("there is no replica of it here")
	case h.Group.Failed() != nil:
		return nil, fmt.Errorf("its replica here has failed: %w", h.Group.Failed())
	}
	return hostedRight{h, n}, nil
}

// hostedRight is the open replica of a partition that is being consumed here.
type hostedRight struct {
	h    *hosted.Replica
	node *Lifecycle
}

func (r hostedRight) Replica() *replica.Replica { return r.h.Replica }

func (r hostedRight) Entries(after, last uint64, do func([]group.Entry) error) error {
	return splitrecovery.EachPiece(r.h.Group.Storage(), after, last, do)
}

func (r hostedRight) Subsumed(by *clusterpb.Partition) {
	n := r.node
	if g := n.Host.Group(keys.PartitionID(by.GetId())); g != nil {
		g.ForgetBeginning()
	}
	n.Merged.end(r.h, by)
}

// Open finds a replica whose partition's span a snapshot takes over; see replica.Node.Open.
func (m *Merged) Open(id keys.PartitionID) *replica.Replica {
	if h := m.opened(id); h != nil {
		return h.Replica
	}
	return nil
}

// opened finds a replica, and waits for it if it is being opened.
func (m *Merged) opened(id keys.PartitionID) *hosted.Replica {
	n := m.node
	for !n.closing() {
		over, opening := n.openings.of(id)
		if h := n.Replicas.Get(id); h != nil || !opening {
			return h
		}
		select {
		case <-over:
		case <-n.ending:
		}
	}
	return nil
}

// Taken notes that a snapshot has taken over a span; see replica.Node.Taken.
func (m *Merged) Taken(id keys.PartitionID, by *clusterpb.Partition) {
	n := m.node
	m.bySnapshot.Inc()
	if h := n.Replicas.Get(id); h != nil {
		m.end(h, by)
		return
	}
	x, found := n.broken.LoadAndDelete(id)
	m.mu.Lock()
	if found {
		m.mu.closed = append(m.mu.closed, x.(brokenReplica).identity)
	}
	m.rememberLocked(id, by)
	m.mu.Unlock()
	if found {
		n.brokenReplicas.Dec()
	}
	m.wake.Send()
}

// end schedules the closing of a replica that was consumed.
func (m *Merged) end(h *hosted.Replica, by *clusterpb.Partition) {
	m.mu.Lock()
	m.mu.ended = append(m.mu.ended, h)
	m.rememberLocked(h.ID, by)
	m.mu.Unlock()
	m.merged.Inc()
	m.wake.Send()
}

func (m *Merged) rememberLocked(id keys.PartitionID, by *clusterpb.Partition) {
	if m.mu.by[id] == nil {
		m.mu.order = append(m.mu.order, id)
	}
	m.mu.by[id] = by
	if len(m.mu.order) > keptMerges {
		delete(m.mu.by, m.mu.order[0])
		m.mu.order = m.mu.order[1:]
	}
}

// SubsumedBy returns the successor of a partition that was merged here; nil if there was no such
// merge lately.
func (m *Merged) SubsumedBy(id keys.PartitionID) *clusterpb.Partition {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.by[id]
}

// bury closes replicas that were consumed, at once, since they must not vote and acknowledge for a
// partition that no longer exists; it removes their logs a while later.
func (m *Merged) bury(ctx context.Context) {
	var due <-chan time.Time // until the next flush; nil: nothing waits for one
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
			m.closeEnded()
		case <-due:
			due = nil
			if err := m.removeLogs(); err != nil {
				m.node.Logger.Error("removing the logs of partitions that were merged into others failed; it "+
					"will be tried again", "error", err)
			}
		}
		if due == nil && m.unburied() {
			due = time.After(BuryPause)
		}
	}
}

// unburied reports whether there are logs to be removed.
func (m *Merged) unburied() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.mu.closed) > 0
}

// closeEnded closes the replicas that were consumed.
func (m *Merged) closeEnded() {
	n := m.node
	m.burying <- struct{}{}
	defer func() { <-m.burying }()
	m.mu.Lock()
	ended := m.mu.ended
	m.mu.ended = nil
	m.mu.Unlock()
	var closed []*hosted.Replica
	for _, h := range ended {
		if h.Removed.Swap(true) {
			// The reconciler has closed the replica before, and removes what it has of its own.
			h.Removal.Moved.Store(true)
			h.Removal.TakenOver.Store(true)
			n.due.lookAt(h.ID)
			continue
		}
		n.Host.Remove(h.Group)
		n.Children.forget(h)
		n.rooms.Closed(h)
		closed = append(closed, h)
	}
	n.Replicas.Change(nil, closed)
	for _, h := range closed {
		n.rooms.Merged(h)
		h.Replica.AnswerHeld()
		h.Replica.Close()
		m.mu.Lock()
		m.mu.closed = append(m.mu.closed, h.Identity)
		m.mu.Unlock()
	}
	if len(ended) > 0 {
		n.due.spansChanged()
	}
}

// removeLogs removes the logs of the closed replicas.
//
// INVARIANT: the merges are durable before. They are in the state already, so a flush is enough.
// And the logs are removed before the partitions that have consumed theirs can be removed: see
// destroy.
func (m *Merged) removeLogs() error {
	m.burying <- struct{}{}
	defer func() { <-m.burying }()
	m.mu.Lock()
	closed := m.mu.closed
	m.mu.Unlock()
	if len(closed) == 0 {
		return nil
	}
	if err := m.node.State.Flush(); err != nil {
		return err
	}
	if err := m.node.Host.Log().Remove(closed...); err != nil {
		return err
	}
	m.mu.Lock()
	m.mu.closed = m.mu.closed[len(closed):]
	m.mu.Unlock()
	return nil
}
