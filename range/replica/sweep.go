package replica

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/locks"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// Locks whose client is gone are not left until somebody happens to meet them.

const (
	// sweepAfter is how old a transaction's latest lock is before it is asked about.
	sweepAfter = 2 * time.Second
	// sweepMost is about how many transactions of a partition one sweep asks.
	sweepMost = 64
)

// Locked says that transactions have keys of the partition locked. It is cheap.
func (r *Replica) Locked() bool { return r.locked.Load() != 0 }

// SweepLocks asks about transactions that have had locks here for a while, and ends the locks of those that are over. It is to be called
// about every second where there are locks; on a replica that does not lead it does nothing. now is the physical clock, in nanoseconds
// since the epoch. It does not wait for anything.
func (r *Replica) SweepLocks(now int64) {
	if !r.enter() {
		return
	}
	defer r.exit()
	var todo lockWork
	r.mu.Lock()
	if !r.mu.serving || r.node.Pusher == nil {
		r.mu.Unlock()
		return
	}
	left := sweepMost
	r.mu.locks.EachTransaction(func(x *locks.Transaction[*parked]) bool {
		switch {
		case x.Known.State != kvpb.TransactionState_PENDING:
			todo.resolve = append(todo.resolve, x.ID)
		case now-x.Laid > int64(sweepAfter) && r.mu.waits.blockers[x.ID] == nil:
			b := r.blockerLocked(x, r.lockNow())
			b.sendLocked(r, &b.write, &kvpb.PushRequest{Kind: kvpb.PushRequest_STATUS}, hlc.Timestamp{}, txn.ID{}, &todo)
		default:
			return true
		}
		left--
		return left > 0
	})
	r.mu.Unlock()
	r.node.Metrics.sweeps.Add(float64(len(todo.pushes)))
	todo.run(r)
}
