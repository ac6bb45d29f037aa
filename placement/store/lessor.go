package store

import (
	"container/heap"
	"slices"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

const (
	// lessorTick is how often the leader looks for leases that ran out.
	lessorTick = 250 * time.Millisecond
	// pauseTolerance is by how much a tick may be late before the leader takes it that its process
	// was paused, and that the silence of the leases' owners was its own.
	pauseTolerance = 2 * time.Second
	// expiriesPerTick bounds how many leases end at once.
	expiriesPerTick = 128
	// notesPerTick bounds how many leases one checkpoint is of.
	notesPerTick = 1024
	// noteSlack is by how much a checkpoint may be short.
	noteSlack = 2 * time.Second
	// endAgain is when the end of a lease is proposed again that has not come.
	endAgain = 4 * pauseTolerance
)

// lessor knows which leases exist, and on the leader how long each has left. It counts on the
// monotonic clock.
type lessor struct {
	// now is a time that ascends like the monotonic clock; it shows no wall clock's time.
	now func() time.Time
	// checkpointAfter is Config.CheckpointAfter.
	checkpointAfter time.Duration
	mu              struct {
		sync.Mutex
		leases map[int64]*countdown
		// due has an element for each lease that counts down, by when it is to be looked at; a lease
		// that was renewed meanwhile goes in again.
		due dueHeap
		// keys is how many keys each lease has, for those that have any.
		keys map[int64]int
		// active: this member leads, and has applied everything that was committed before its term.
		active bool
		// ticked is when expired was last called.
		ticked time.Time
	}
}

type countdown struct {
	term     time.Duration
	deadline time.Time
	// left is what the last checkpoint said; 0: there is none since the lease was granted or renewed.
	// noted: a checkpoint was proposed, and may or may not be applied yet.
	left  time.Duration
	noted bool
	// noteAt is when the next checkpoint is due.
	noteAt time.Time
	// ending is when its end was proposed; zero if it was not. From then on it cannot be renewed.
	ending time.Time
	// spared: since it was renewed it has got a full term because the process was paused.
	spared bool
}

func newLessor(clock hlc.Monotonic, checkpointAfter time.Duration) *lessor {
	l := &lessor{now: func() time.Time { return time.Unix(0, clock()) },
		checkpointAfter: checkpointAfter}
	l.mu.leases, l.mu.keys = map[int64]*countdown{}, map[int64]int{}
	return l
}

// replace forgets everything and takes over what is in the state: the leases, and how many keys
// they have.
func (l *lessor) replace(leases []leaseChange, keys map[int64]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.mu.leases)
	clear(l.mu.keys)
	l.mu.due = nil
	l.changedLocked(leases, keys)
}

// changed follows what was applied; keys is how many keys leases have got or lost.
func (l *lessor) changed(changes []leaseChange, keys map[int64]int) {
	if len(changes) == 0 && len(keys) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changedLocked(changes, keys)
}

func (l *lessor) changedLocked(changes []leaseChange, keys map[int64]int) {
	for id, n := range keys {
		if l.mu.keys[id] += n; l.mu.keys[id] == 0 {
			delete(l.mu.keys, id)
		}
	}
	now := l.now()
	if len(l.mu.leases) == 0 {
		l.mu.ticked = now // nothing was counted until now
	}
	defer l.tidyLocked()
	for _, c := range changes {
		if c.ttlMillis == 0 {
			delete(l.mu.leases, c.id)
			continue
		}
		term, left := millis(c.ttlMillis), millis(c.leftMillis)
		if was := l.mu.leases[c.id]; was != nil && c.checkpoint {
			was.left, was.noted = left, left > 0
			if l.mu.active && left > 0 && was.deadline.Sub(now) > left+noteSlack {
				// It was renewed, or granted anew, before this came. The right rest follows.
				was.noteAt = now
				heap.Push(&l.mu.due, due{now, c.id, was})
			}
			continue
		}
		lease := &countdown{term: term, deadline: now.Add(term), left: left, noted: left > 0,
			noteAt: now.Add(l.checkpointAfter)}
		l.mu.leases[c.id] = lease
		if l.mu.active {
			heap.Push(&l.mu.due, due{earlier(lease.deadline, lease.noteAt), c.id, lease})
		}
	}
}

// tidyLocked keeps what is due from being mostly of leases that are gone.
func (l *lessor) tidyLocked() {
	if len(l.mu.due) <= 2*len(l.mu.leases)+1024 {
		return
	}
	l.mu.due = slices.DeleteFunc(l.mu.due, func(d due) bool { return l.mu.leases[d.id] != d.lease })
	heap.Init(&l.mu.due)
}

func millis(n uint64) time.Duration { return time.Duration(n) * time.Millisecond }

// activate starts counting, with a full term for every lease, or what was left of it at its last
// checkpoint; deactivate stops.
func (l *lessor) activate(active bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.active == active {
		return
	}
	l.mu.active = active
	l.mu.ticked = l.now()
	l.mu.due = l.mu.due[:0]
	if !active {
		return
	}
	for id, c := range l.mu.leases {
		term := c.term
		if c.left > 0 {
			term = c.left
		}
		c.deadline, c.ending, c.spared = l.mu.ticked.Add(term), time.Time{}, false
		c.noted, c.noteAt = c.left > 0, l.mu.ticked.Add(l.checkpointAfter)
		l.mu.due = append(l.mu.due, due{earlier(c.deadline, c.noteAt), id, c})
	}
	heap.Init(&l.mu.due)
}

// spareLocked is for when the process was paused, and no renewals were heard: every lease gets a
// full term from now on. One that got that before and was not renewed since gets only back what the
// silence has taken, so that a process that stands still again and again does not keep the leases
// of owners that are gone.
func (l *lessor) spareLocked(now time.Time, silence time.Duration) {
	for _, c := range l.mu.leases {
		if !c.ending.IsZero() {
			continue // it ran out before; its end may be in the log
		}
		if c.spared {
			c.deadline = c.deadline.Add(silence)
		} else {
			c.deadline = now.Add(c.term)
		}
		c.spared = true
	}
}

// renew moves the deadlines of leases, and fills in their terms; 0 for one that cannot be renewed.
// The caller makes sure afterwards that this member leads: if it does not, it ends no lease, and its
// deadlines mean nothing. Of those in noted nothing was done: the log may say how much they had
// left, and a later leader would go by that, so it has to be taken back there first.
func (l *lessor) renew(
	ids []int64, terms []time.Duration,
) (noted []*storepb.LeaseCheckpoint_Lease, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.mu.active {
		return nil, &NotLeaderError{}
	}
	now := l.now()
	for i, id := range ids {
		terms[i] = 0
		c := l.mu.leases[id]
		switch {
		case c == nil || !c.ending.IsZero():
		case c.noted:
			noted = append(noted, &storepb.LeaseCheckpoint_Lease{Id: id})
		default:
			c.deadline, c.noteAt, c.spared = now.Add(c.term), now.Add(l.checkpointAfter), false
			terms[i] = c.term
		}
	}
	return noted, nil
}

// expired returns leases that ran out, and marks them. A lease whose end was proposed a while ago
// and did not come is returned again. notes are leases whose rest is to be noted. paused says that
// the process was paused, and that every lease got a full term.
func (l *lessor) expired() (
	ids []int64, notes []*storepb.LeaseCheckpoint_Lease, paused bool,
) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.mu.active {
		return nil, nil, false
	}
	now := l.now()
	silence := now.Sub(l.mu.ticked)
	paused = silence > lessorTick+pauseTolerance
	l.mu.ticked = now
	if paused {
		l.spareLocked(now, silence)
		return nil, nil, true
	}
	for len(l.mu.due) > 0 && !now.Before(l.mu.due[0].at) {
		if len(ids) >= expiriesPerTick || len(notes) >= notesPerTick {
			break
		}
		d := heap.Pop(&l.mu.due).(due)
		c := d.lease
		if l.mu.leases[d.id] != c {
			continue // it is gone
		}
		switch {
		case !now.Before(c.deadline):
			c.ending = now
			ids = append(ids, d.id)
			heap.Push(&l.mu.due, due{now.Add(endAgain), d.id, c})
			continue
		case !now.Before(c.noteAt):
			left := c.deadline.Sub(now)
			c.noted, c.noteAt = true, now.Add(l.checkpointAfter)
			notes = append(notes, &storepb.LeaseCheckpoint_Lease{Id: d.id,
				LeftMillis: uint64(max(1, left.Milliseconds()))})
		}
		heap.Push(&l.mu.due, due{earlier(c.deadline, c.noteAt), d.id, c})
	}
	return ids, notes, false
}

// counting says whether there is anything to count down.
func (l *lessor) counting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.active && len(l.mu.leases) > 0 {
		return true
	}
	l.mu.ticked = l.now() // not a pause
	return false
}

func (l *lessor) remaining(id int64) (term, left time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.mu.leases[id]
	if c == nil {
		return 0, 0, false
	}
	return c.term, max(0, c.deadline.Sub(l.now())), true
}

// attached is how many keys a lease has.
func (l *lessor) attached(id int64) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.keys[id]
}

func (l *lessor) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.leases)
}
