package concurrency

import (
	"bytes"
	"slices"

	"github.com/tidemarkdb/tidemark/txn"
)

// A transaction that was aborted on request has no locks any more, and its record cannot be found
// by its id alone. So the leader remembers which those were, for a request that is repeated: it
// reads their records then. What it forgets is told as what is not known.

// maxAbortedOnRequest is how many are remembered.
const maxAbortedOnRequest = 32

// RememberAborted notes that a transaction was asked to be aborted.
func (m *Manager) RememberAborted(of txn.Info) {
	c := m.coordinator()
	if slices.ContainsFunc(c.aborted, func(x txn.Info) bool { return x.ID == of.ID }) {
		return
	}
	if len(c.aborted) == maxAbortedOnRequest {
		c.aborted = slices.Delete(c.aborted, 0, 1)
	}
	of.Anchor = bytes.Clone(of.Anchor)
	c.aborted = append(c.aborted, of)
}

// AbortedOnRequest is the transaction with an id that was asked to be aborted, if it is remembered.
func (m *Manager) AbortedOnRequest(id []byte) (of txn.Info, ok bool) {
	if m.coordinated == nil {
		return of, false
	}
	i := slices.IndexFunc(m.coordinated.aborted,
		func(x txn.Info) bool { return bytes.Equal(x.ID[:], id) })
	if i < 0 {
		return of, false
	}
	return m.coordinated.aborted[i], true
}
