package concurrency

import "github.com/tidemarkdb/tidemark/txn"

// A coordinator remembers which of its transactions have locks that anything waits for, somewhere:
// a large transaction then hurries. It learns so from pushes, and tells with heartbeats.

// maxWanted bounds how many wanted transactions are remembered: beyond that all are forgotten, and
// asked for again soon.
const maxWanted = 1024

// Want notes that a request waits for a transaction's locks.
func (m *Manager) Want(id txn.ID) {
	c := m.coordinator()
	if _, known := c.wanted[id]; !known && len(c.wanted) >= maxWanted {
		c.wanted = nil
	}
	if c.wanted == nil {
		c.wanted = make(map[txn.ID]struct{})
	}
	c.wanted[id] = struct{}{}
}

// Wanted says whether a request waits for a transaction's locks, or did.
func (m *Manager) Wanted(id txn.ID) bool {
	if m.coordinated == nil {
		return false
	}
	_, wanted := m.coordinated.wanted[id]
	return wanted
}
