package node

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/replica"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
)

// machine is the state machine that the host drives: the replica, and hooks through which the node
// follows it.
type machine struct {
	*replica.Replica
	h    *hosted.Replica
	node *Node
}

var (
	_ group.StateMachine = machine{}
	_ group.Urgent       = machine{}
)

// Apply runs on an apply worker.
func (m machine) Apply(entries []group.Entry) error {
	began := time.Now()
	if err := m.Replica.Apply(entries); err != nil {
		return err
	}
	m.h.Load.Applying.Add(int64(time.Since(began)))
	bytes, effective := int64(0), false
	for i := range entries {
		bytes += 64 + int64(len(entries[i].Data))
		if !entries[i].Change && proposal.KindOf(entries[i].Data) == proposal.KindRemove {
			m.node.giveBack.Removed(m.h.ID, int64(len(entries[i].Data)))
		}
		effective = effective || len(entries[i].Data) > 0
	}
	m.h.Load.Written.Add(uint64(bytes))
	m.node.flusher.Applied(bytes)
	// An entry without effect counts too: it may settle an earlier change of the descriptor, which
	// can be reported now.
	if m.h.Leading.Load() {
		m.node.reports.Changed(m.h)
		if effective {
			m.node.collector.Noticed(m.h)
		}
	}
	return nil
}

// LeadershipChanged runs on the group's shard worker.
func (m machine) LeadershipChanged(l group.Leadership) {
	m.Replica.LeadershipChanged(l)
	n, h := m.node, m.h
	if l.IsLeader && !h.Leading.Load() {
		h.LedSince.Store(n.base.Now())
	}
	was := h.Leading.Swap(l.IsLeader)
	n.leaders.Changed(h, l)
	if l.Leader != 0 && h.Split.Campaigning.Load() {
		n.newChildren.wake.Send()
	}
	if l.IsLeader || was {
		n.reports.ChangedLeader(h)
	}
	if l.IsLeader && h.Split.NewChild.Swap(false) {
		// An operator waits for this report before it goes on with the partition.
		n.reports.CarriedOut(h)
	}
	if l.IsLeader {
		n.collector.Noticed(h)
	}
	if l.Leader == 0 && !h.Removed.Load() {
		n.elections.AddLater(h)
	}
}

// Machine implements lifecycle.Rooms.
func (n *Node) Machine(h *hosted.Replica, r *replica.Replica) group.StateMachine {
	return machine{r, h, n}
}

// Campaign implements lifecycle.Rooms.
func (n *Node) Campaign(h *hosted.Replica) { n.newChildren.add(h) }

// Closed implements lifecycle.Rooms.
func (n *Node) Closed(h *hosted.Replica) {
	n.leaders.Forget(h)
	n.collector.Forget(h)
	n.giveBack.Forget(h.ID)
	n.newChildren.forget(h)
}

// Merged implements lifecycle.Rooms: this node no longer leads the partition.
func (n *Node) Merged(h *hosted.Replica) { n.reports.ChangedLeader(h) }

// Removed implements lifecycle.Rooms.
func (n *Node) Removed(h *hosted.Replica) {
	n.reports.Forget(h)
	n.giveBack.RemovedLogs(h.ID)
}
