package node

import (
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/replica"
)

// machine is the state machine that the host drives: the replica, and what the node wants to know of it.
type machine struct {
	*replica.Replica
	h *hosted
}

var _ group.StateMachine = machine{}

// Apply runs on an apply worker.
func (m machine) Apply(entries []group.Entry) error {
	if err := m.Replica.Apply(entries); err != nil {
		return err
	}
	bytes, effective := int64(0), false
	for i := range entries {
		bytes += 64 + int64(len(entries[i].Data))
		effective = effective || len(entries[i].Data) > 0
	}
	m.h.node.flusher.applied(bytes)
	if !effective {
		return nil
	}
	if m.h.leading.Load() {
		m.h.node.reports.changed(m.h)
		m.h.node.collector.noticed(m.h)
	}
	return nil
}

// LeadershipChanged runs on the group's shard worker.
func (m machine) LeadershipChanged(l group.Leadership) {
	m.Replica.LeadershipChanged(l)
	m.h.node.leadershipChanged(m.h, l)
}
