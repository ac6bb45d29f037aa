package replica

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/range/replica/locks"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// A clearing ends the locks of a transaction whose outcome is known, entry by entry. A transaction may have tens of thousands of locks in
// a partition, and to turn all of them into versions as fast as can be would keep processors and disks from everybody else. So if it has many
// here and nobody waits for it, the entries are small, and after each comes a rest that is longer than the entry took; and the
// clearings of a node rest by turns, so that it does not matter in how many partitions. Whoever comes to wait ends that for good: he may meet
// other locks next. Only large transactions do not: they are what is held back, and not those for whom it is; the rests become shorter for them.
//
// What rests ends fewer locks than could be laid in the meantime. So only few transactions do so at a time on a node, and none where there
// are many locks already: they must not pile up.
type clearing struct {
	// urgent: somebody has waited for it.
	urgent bool
	// turns: its transaction is one of those that rest on this node.
	turns bool
	// more: it is not over with the entry on its way.
	more bool
	// began is when the entry on its way was asked for.
	began time.Time
	// timer ends its rest; nil: it has had none. rests: it does so now.
	timer *time.Timer
	rests bool
}

const (
	// turnLocks and turnBytes are from how many locks in a partition on a clearing rests, and turnsMost is for how many transactions
	// of a node at a time.
	turnLocks = 2000
	turnBytes = 512 << 10
	turnsMost = 2
	// A partition with more locks than one part in crowdedLocks of what it may have makes way no more than need be, and one with more than
	// one in hurriedLocks not at all.
	crowdedLocks = 8
	hurriedLocks = 2
)

// overLocked lets go of what a clearing holds, which is in no table any more.
func (c *clearing) overLocked(r *Replica, id txn.ID) {
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.turns {
		c.turns = false
		r.node.resolving.Leave(id)
	}
}

// resolveDecided has the locks of a transaction ended whose outcome is known here.
func (r *Replica) resolveDecided(id txn.ID) {
	r.mu.Lock()
	x := r.mu.locks.Transaction(id)
	if x == nil || x.Known.State == kvpb.TransactionState_PENDING {
		r.mu.Unlock()
		return
	}
	w := &r.mu.waits
	c := w.clearings[id]
	switch {
	case c == nil:
		if w.clearings == nil {
			w.clearings = make(map[txn.ID]*clearing)
		}
		c = &clearing{turns: large(x) && r.node.resolving.Join(id)}
		w.clearings[id] = c
	case !c.rests || !c.urgentLocked(r, x):
		r.mu.Unlock()
		return
	default:
		c.rests = false
		c.timer.Stop()
	}
	reign := r.mu.reign
	r.mu.Unlock()
	r.clear(id, c, reign)
}

// urgentLocked says whether somebody waits for the transaction's locks who should not, or has done so.
func (c *clearing) urgentLocked(r *Replica, x *locks.Transaction[*parked]) bool {
	if c.urgent || r.node.hooks.lockTime != nil {
		return true
	}
	c.urgent = r.wantedLocked(x)
	return c.urgent
}

// paceLocked is how many bytes the next entry ends, and with what priority it is paced.
func (c *clearing) paceLocked(r *Replica, x *locks.Transaction[*parked], now time.Time) (room int, by admission.Priority) {
	all := r.mu.locks.Len()
	switch {
	case c.urgentLocked(r, x):
		return resolveBytes, admission.Urgent
	case !c.turns || all > r.node.MaxLocks/hurriedLocks:
		return restfulBytes, admission.Urgent
	case all > r.node.MaxLocks/crowdedLocks || !r.node.load.Busy(now):
		return restfulBytes, admission.Awaited
	case awaited(x):
		return crowdedBytes, admission.Awaited
	}
	return crowdedBytes, admission.Low
}

// large says that a transaction has many locks in the partition.
func large(x *locks.Transaction[*parked]) bool {
	if x.Locks() >= turnLocks {
		return true
	}
	bytes := 0
	x.Each(func(l *lock) bool {
		if !l.InFlight() {
			bytes += lockBytes(l, true)
		}
		return bytes < turnBytes
	})
	return bytes >= turnBytes
}

// wantedLocked says whether somebody waits for a transaction's locks for whom there is to be no rest.
func (r *Replica) wantedLocked(x *locks.Transaction[*parked]) (wanted bool) {
	if b := r.mu.waits.blockers[x.ID]; b != nil && len(b.reads)+len(b.asked) > 0 {
		return true
	}
	x.EachWaiter(func(_ string, p *parked) {
		wanted = wanted || p.presses()
	})
	return wanted
}

// awaited says whether any write waits for a transaction's locks.
func awaited(x *locks.Transaction[*parked]) (any bool) {
	x.EachWaiter(func(_ string, p *parked) { any = any || !p.command.EndsLocks })
	return any
}

// presses says that for a write that waits there is to be no rest. Large transactions are patient, and a Resolve is what ends the locks.
func (p *parked) presses() bool {
	return !p.command.EndsLocks && !p.pending.Request.GetPrepare().GetPatient()
}

// clear ends what an entry holds of the transaction's locks. The clearing does not rest.
func (r *Replica) clear(id txn.ID, c *clearing, reign uint64) {
	c.began = time.Now()
	r.enqueueInternal(&internalCommand{kind: proposal.KindTransaction, shared: true,
		evaluate: func(e *evaluation, _ *proposal.Entry) (bool, error) {
			b := resolution{e: e}
			var status *kvpb.TransactionStatus
			r.mu.Lock()
			if x := r.mu.locks.Transaction(id); x != nil && r.mu.reign == reign && x.Known.State != kvpb.TransactionState_PENDING {
				status = &kvpb.TransactionStatus{State: x.Known.State, Timestamp: rpc.ToTimestamp(x.Known.Commit),
					Reason: x.Known.Reason, Wounder: x.Known.Wounder.Bytes(),
					WantedKey: x.Known.Wanted.Key, WantedKeyspace: uint32(x.Known.Wanted.Keyspace),
					LimitMicros: uint64(x.Known.Limit.Microseconds())}
				b.room, _ = c.paceLocked(r, x, c.began)
			}
			r.mu.Unlock()
			if status == nil {
				return false, errNothingToDo
			}
			e.withdraw(&kvpb.Resolution{Transaction: id[:], Status: status})
			if err := b.transaction(id, status); err != nil {
				e.over = true
				return false, err
			}
			c.more = b.more != nil
			switch {
			case b.resolved == 0 && c.more:
				return false, errAgain
			case b.resolved == 0:
				return false, errNothingToDo
			}
			return true, nil
		},
		done: func(err error) { r.cleared(id, c, reign, err) }})
}

// cleared takes in how an entry ended, and goes on, or rests.
func (r *Replica) cleared(id txn.ID, c *clearing, reign uint64, err error) {
	r.mu.Lock()
	x := r.mu.locks.Transaction(id)
	switch {
	case r.mu.reign != reign || r.mu.waits.clearings[id] != c:
		r.mu.Unlock()
		return
	case err != nil || !c.more || x == nil || r.closed.Load():
		delete(r.mu.waits.clearings, id)
		c.overLocked(r, id)
		r.mu.Unlock()
		return
	}
	now := time.Now()
	_, by := c.paceLocked(r, x, now)
	if by == admission.Urgent {
		r.mu.Unlock()
		r.clear(id, c, reign)
		return
	}
	c.rests = true
	c.timer = time.AfterFunc(r.node.resolutions.Pause(now, now.Sub(c.began), by), func() {
		if !r.enter() {
			return // closing ends the reign, and with it the clearing
		}
		defer r.exit()
		r.mu.Lock()
		goOn := r.mu.reign == reign && r.mu.waits.clearings[id] == c && c.rests
		c.rests = c.rests && !goOn
		r.mu.Unlock()
		if goOn {
			r.clear(id, c, reign)
		}
	})
	r.mu.Unlock()
}
