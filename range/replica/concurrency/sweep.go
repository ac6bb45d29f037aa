package concurrency

import (
	"time"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Locks whose client is gone are not left until something happens to meet them.

const (
	// sweepAfter is how old a transaction's latest lock is before it is asked about.
	sweepAfter = 2 * time.Second
	// sweepMost is about how many transactions of a partition one sweep asks.
	sweepMost = 64
)

// Sweep asks about transactions that have had locks for a while and that nothing waits for, and has
// the locks of those that are over released. It is to be called about every second while there are
// locks. physical is the physical clock, in nanoseconds since the epoch.
func (m *Manager) Sweep(physical int64, now time.Time, work *Work) {
	if !m.config.Pushes {
		return
	}
	left := sweepMost
	m.EachTransaction(func(x *Transaction) bool {
		switch {
		case x.Known.State != kvpb.TransactionState_PENDING:
			work.Resolve = append(work.Resolve, x)
		case physical-x.Acquired > int64(sweepAfter) && m.Pushes.queues[x] == nil:
			q := m.Pushes.queue(x, now)
			m.Pushes.send(q, &q.abort, &kvpb.PushRequest{Kind: kvpb.PushRequest_STATUS}, age{}, work)
		default:
			return true
		}
		left--
		return left > 0
	})
	m.config.Metrics.sweeps.Add(float64(len(work.Pushes)))
}
