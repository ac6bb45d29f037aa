package replica

import (
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/replica/locks"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// A clearing ends the locks of a transaction whose outcome is known, entry by entry. A transaction may have tens of thousands of locks in
// a partition, and to turn all of them into versions as fast as can be would keep processors and disks from everybody else. So if
// nobody waits for it, the entries are small, and after each comes a rest that is longer than the entry took; and the
// clearings of a node rest by turns, so that it does not matter how many there are. Whoever comes to wait ends that for good: he may meet
// other locks next. Only large transactions do not: they are what is held back, and not those for whom it is; the rests become shorter for them.
type clearing struct {
	// urgent: somebody has waited for it.
	urgent bool
	// more: it is not over with the entry on its way.
	more bool
	// began is when the entry on its way was asked for.
	began time.Time
	// timer ends its rest; nil: it has had none. rests: it does so now.
	timer *time.Timer
	rests bool
}

const (
	// restTimes is how much longer than an entry the rest after it is, crowdedTimes if the node is crowded; it is no longer than maxRest.
	restTimes    = 2
	crowdedTimes = 8
	maxRest      = 50 * time.Millisecond
	// A partition with more locks than this part of what it may have makes way no more than need be: locks must not pile up.
	crowdedLocks = 8
)

// stopLocked ends a rest for good.
func (c *clearing) stopLocked() {
	if c.timer != nil {
		c.timer.Stop()
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
		c = &clearing{}
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
	x.EachWaiter(func(_ string, p *parked) { any = any || p.command != commandResolve })
	return any
}

// presses says that for a write that waits there is to be no rest. Large transactions are patient, and a Resolve is what ends the locks.
func (p *parked) presses() bool {
	return p.command != commandResolve && !p.pending.Request.GetPrepare().GetPatient()
}

// clear ends what an entry holds of the transaction's locks. The clearing does not rest.
func (r *Replica) clear(id txn.ID, c *clearing, reign uint64) {
	c.began = time.Now()
	r.enqueueInternal(&internalCommand{kind: kindTransaction, shared: true,
		evaluate: func(e *evaluation, _ *payload) (bool, error) {
			b := resolution{e: e, room: resolveBytes}
			var status *kvpb.TransactionStatus
			r.mu.Lock()
			if x := r.mu.locks.Transaction(id); x != nil && r.mu.reign == reign && x.Known.State != kvpb.TransactionState_PENDING {
				status = &kvpb.TransactionStatus{State: x.Known.State, Timestamp: rpc.ToTimestamp(x.Known.Commit),
					Reason: x.Known.Reason, Wounder: x.Known.Wounder.Bytes(),
					WantedKey: x.Known.Wanted.Key, WantedKeyspace: uint32(x.Known.Wanted.Keyspace)}
				switch {
				case c.urgentLocked(r, x):
				case r.node.crowded(c.began):
					b.room = crowdedBytes
				default:
					b.room = restfulBytes
				}
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
			if b.resolved == 0 {
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
		r.mu.Unlock()
		return
	case c.urgentLocked(r, x):
		r.mu.Unlock()
		r.clear(id, c, reign)
		return
	}
	now, times := time.Now(), time.Duration(restTimes)
	if r.node.crowded(now) && r.mu.locks.Len() <= r.node.MaxLocks/crowdedLocks && !awaited(x) {
		times = crowdedTimes
	}
	c.rests = true
	c.timer = time.AfterFunc(r.node.pace.rest(now, times*now.Sub(c.began)), func() {
		if !r.enter() {
			return
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

// pace has the clearings of a node rest by turns.
type pace struct {
	mu sync.Mutex
	// next is when all rests that were given out are over.
	next time.Time
}

// rest is how long to rest now, by turns, for a rest of so long.
func (p *pace) rest(now time.Time, long time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(min(maxRest, long))
	return p.next.Sub(now)
}
