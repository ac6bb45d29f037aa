package concurrency

import (
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Describe returns what is known here about a transaction with locks, and the requests that wait
// for it. physical is the physical clock, in nanoseconds since the epoch.
func (m *Manager) Describe(x *Transaction, now time.Time, physical int64) *kvpb.LiveTransaction {
	live := &kvpb.LiveTransaction{Transaction: x.Proto(), Intents: uint64(x.Locks()),
		Spans: uint64(x.Spans())}
	var oldest int64
	var latest uint64
	x.Each(func(l *Lock) bool {
		s := l.Newest()
		if live.Key == nil || s.Acquired < oldest {
			live.Key, oldest = []byte(l.Key), s.Acquired
		}
		if s.Request.Sequence >= latest {
			live.Client, latest = s.Request.Client, s.Request.Sequence
		}
		return true
	})
	live.AgeMicros = uint64(max(0, physical-x.Started.Wall) / 1000)
	live.OldestMicros = uint64(max(0, physical-oldest) / 1000)
	waited := func(since time.Time) uint64 { return uint64(max(0, now.Sub(since)).Microseconds()) }
	x.EachWaiter(func(key string, w *Waiter) {
		live.Waiters = append(live.Waiters, &kvpb.Waiter{
			Transaction: w.Transaction.Bytes(), Key: []byte(key), WaitedMicros: waited(w.since),
			Write: true})
	})
	if q := m.Pushes.queues[x]; q != nil {
		for _, l := range slices.Concat(q.reads, q.asked) {
			if !l.over {
				live.Waiters = append(live.Waiters, &kvpb.Waiter{Transaction: l.read.Transaction.Bytes(),
					Key: l.read.Conflict.Key, WaitedMicros: waited(l.since)})
			}
		}
	}
	return live
}
