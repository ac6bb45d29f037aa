package concurrency

import (
	"time"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Sweeps release locks whose client is gone, even if no request meets them.

const (
	// sweepAfter is the age of a transaction's latest lock at which its coordinator is asked.
	sweepAfter = 2 * time.Second
	// sweepMost bounds about how many transactions of a partition one sweep asks for.
	sweepMost = 64
)

// Sweep asks about transactions that have had locks for a while and for which nothing waits, and
// has the locks of decided ones released. It is to be called about every second while there are
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
