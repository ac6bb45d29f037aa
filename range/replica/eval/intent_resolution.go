package eval

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// The locks of a transaction whose outcome is known here are released entry by entry, at the pace
// that the concurrency manager sets.

// resolveDecided releases the locks of a transaction whose outcome is known here.
func (r *Evaluator) resolveDecided(of *concurrency.Transaction) {
	r.Mu.Lock()
	x := r.Mu.Locks.Resolutions.Start(of)
	r.Mu.Unlock()
	if x != nil {
		r.resolveNext(x)
	}
}

// resolveNext releases as many of the transaction's locks as one entry holds.
func (r *Evaluator) resolveNext(x *concurrency.Resolution) {
	asked, more := time.Now(), false
	r.enqueueInternal(&internalCommand{kind: proposal.KindTransaction, shared: true,
		evaluate: func(e *evaluation, _ *proposal.Entry) (bool, error) {
			b := resolution{e: e}
			r.Mu.Lock()
			var status *kvpb.TransactionStatus
			status, b.room = r.Mu.Locks.Resolutions.NextEntry(x, asked)
			r.Mu.Unlock()
			if status == nil {
				return false, errNothingToDo
			}
			of := x.Transaction()
			known := &kvpb.Resolution{Transaction: of.ID.Bytes(), Keyspace: uint32(of.Keyspace),
				Anchor: of.Anchor, Status: status}
			e.cancelAborted(known)
			if err := b.transaction(known); err != nil {
				e.over = true
				return false, err
			}
			more = b.more != nil
			switch {
			case b.resolved == 0 && more:
				return false, errAgain
			case b.resolved == 0:
				return false, errNothingToDo
			}
			return true, nil
		},
		done: func(err error) {
			r.Mu.Lock()
			due := r.Mu.Locks.Resolutions.EntryDone(x, more && err == nil && !r.IsClosed(), asked, time.Now())
			r.Mu.Unlock()
			if due {
				r.resolveNext(x)
			}
		}})
}

// ContinueResolution implements concurrency.Owner.
func (r *Evaluator) ContinueResolution(x *concurrency.Resolution) {
	if !r.Enter() {
		return // closing ends the leadership epoch, and with it the resolution
	}
	defer r.Exit()
	r.Mu.Lock()
	due := r.Mu.Locks.Resolutions.EndPause(x)
	r.Mu.Unlock()
	if due {
		r.resolveNext(x)
	}
}
