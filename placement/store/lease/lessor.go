package lease

import (
	"cmp"
	"container/heap"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/invariants"
)

const (
	// Tick is the interval at which Due has to be called while the lessor counts; BusyTick is the
	// pause after a call that has reported more.
	Tick     = 250 * time.Millisecond
	BusyTick = 25 * time.Millisecond
	// pauseTolerance is by how much a tick may be late before the leader takes it that its process
	// was paused, and that the silence of the leases' owners was its own.
	pauseTolerance = 2 * time.Second
	// endsAtOnce bounds how many leases are ending at a time, and endKeys how many keys they have
	// together, unless it is one lease. So the members apply the ends of many leases bit by bit, as
	// fast as they can, and other commands in between.
	endsAtOnce = 128
	endKeys    = 2048
	// MaxNotes bounds how many leases one checkpoint is of.
	MaxNotes = 1024
	// noteSlack is by how much a checkpoint may be short.
	noteSlack = 2 * time.Second
	// endAgain is the time after which the end of a lease is proposed again.
	endAgain = 4 * pauseTolerance
)

var (
	// ErrNotCounting says that this member does not lead, and counts no lease down.
	ErrNotCounting = errors.New("leases are not counted down by this member")
)

// Change says what a lease is now.
type Change struct {
	ID int64
	// TTLMillis is its term; 0: it is gone. LeftMillis is the rest in its last checkpoint; 0: there
	// is none.
	TTLMillis, LeftMillis uint64
	// Checkpoint is set if only LeftMillis has changed.
	Checkpoint bool
}

// Lessor knows which leases exist, and on the leader how long each has left. It counts on the
// monotonic clock. Its methods may be called from any goroutine.
type Lessor struct {
	// now is a time that ascends like the monotonic clock; it shows no wall clock's time.
	now func() time.Time
	// checkpointAfter is the part of a term after which the rest has to be noted.
	checkpointAfter time.Duration
	mu              struct {
		sync.Mutex
		leases map[int64]*countdown
		// due has an element for each lease that counts down, by the time of the next look; a lease
		// that was renewed meanwhile is put in again.
		due dueHeap
		// ends are the leases whose end was returned, by the time at which it is returned again;
		// those that are gone are removed at the front. ending counts the others, and endingKeys
		// their keys.
		ends               []due
		ending, endingKeys int
		// keys is how many keys each lease has, for those that have any.
		keys map[int64]int
		// active is set if this member leads, and has applied everything committed before its term.
		active bool
		// ticked is when Due was last called.
		ticked time.Time
	}
}

type countdown struct {
	term     time.Duration
	deadline time.Time
	// left is the rest in the last checkpoint; 0: there is none since the lease was granted or
	// renewed. noted is set if a checkpoint was proposed, whether or not it is applied yet.
	left  time.Duration
	noted bool
	// noteAt is when the next checkpoint is due.
	noteAt time.Time
	// ending is when its end was proposed; zero if it was not. From then on it cannot be renewed.
	ending time.Time
	// keys is how many keys it had then.
	keys int
	// spared: since it was renewed it has got a full term because the process was paused.
	spared bool
}

// New returns a lessor without leases, which counts on a clock once it is active. checkpointAfter
// is the part of a lease's term after which the rest has to be noted in the log.
func New(clock hlc.Monotonic, checkpointAfter time.Duration) *Lessor {
	l := &Lessor{now: func() time.Time { return time.Unix(0, clock()) },
		checkpointAfter: checkpointAfter}
	l.mu.leases, l.mu.keys = map[int64]*countdown{}, map[int64]int{}
	return l
}

// Now is the time by which leases are counted down. It ascends like the monotonic clock, and shows
// no wall clock's time.
func (l *Lessor) Now() time.Time { return l.now() }

// Replace replaces everything by the leases of the state, and the number of keys of each.
func (l *Lessor) Replace(leases []Change, keys map[int64]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.mu.leases)
	clear(l.mu.keys)
	l.mu.due, l.mu.ends, l.mu.ending, l.mu.endingKeys = nil, nil, 0, 0
	l.changedLocked(leases, keys)
}

// Changed follows what was applied; keys is how many keys leases have got or lost.
func (l *Lessor) Changed(changes []Change, keys map[int64]int) {
	if len(changes) == 0 && len(keys) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changedLocked(changes, keys)
}

func (l *Lessor) changedLocked(changes []Change, keys map[int64]int) {
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
		if was := l.mu.leases[c.ID]; was != nil && !was.ending.IsZero() && !c.Checkpoint {
			l.mu.ending-- // it is gone, or another one has its id
			l.mu.endingKeys -= was.keys
		}
		if c.TTLMillis == 0 {
			delete(l.mu.leases, c.ID)
			continue
		}
		term, left := millis(c.TTLMillis), millis(c.LeftMillis)
		if was := l.mu.leases[c.ID]; was != nil && c.Checkpoint {
			was.left, was.noted = left, left > 0
			if l.mu.active && left > 0 && was.deadline.Sub(now) > left+noteSlack {
				// It was renewed, or granted anew, before this note was applied. The right rest
				// follows.
				was.noteAt = now
				heap.Push(&l.mu.due, due{now, c.ID, was})
			}
			continue
		}
		lease := &countdown{term: term, deadline: now.Add(term), left: left, noted: left > 0,
			noteAt: now.Add(l.checkpointAfter)}
		l.mu.leases[c.ID] = lease
		if l.mu.active {
			heap.Push(&l.mu.due, due{earlier(lease.deadline, lease.noteAt), c.ID, lease})
		}
	}
}

// tidyLocked keeps due from consisting mostly of leases that are gone.
func (l *Lessor) tidyLocked() {
	if len(l.mu.due) <= 2*len(l.mu.leases)+1024 {
		return
	}
	l.mu.due = slices.DeleteFunc(l.mu.due, func(d due) bool { return l.mu.leases[d.id] != d.lease })
	heap.Init(&l.mu.due)
}

func millis(n uint64) time.Duration { return time.Duration(n) * time.Millisecond }

// Activate starts counting, with a full term for every lease, or with the rest in its last
// checkpoint; with active false it stops.
func (l *Lessor) Activate(active bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.active == active {
		return
	}
	l.mu.active = active
	l.mu.ticked = l.now()
	l.mu.due, l.mu.ends, l.mu.ending, l.mu.endingKeys = l.mu.due[:0], nil, 0, 0
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

// spareLocked is called after a pause of the process, when no renewals were heard: every lease gets
// a full term from now on. A lease that got that before and was not renewed since gets back only
// the time of the pause, so that a process that stops again and again does not keep the leases of
// owners that are gone.
func (l *Lessor) spareLocked(now time.Time, silence time.Duration) {
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

// Renew moves the deadlines of leases, and fills in their terms; 0 for a lease that does not exist,
// or whose end was returned by Due. The caller makes sure afterwards that this member leads: if it
// does not, it ends no lease, and its deadlines mean nothing. The deadlines of those in noted were
// not moved: the log may have a note of their rest, and a later leader would use it, so the caller
// has the log take it back, and tries again. The error is ErrNotCounting.
func (l *Lessor) Renew(
	ids []int64, terms []time.Duration,
) (noted []*storepb.LeaseCheckpoint_Lease, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.mu.active {
		return nil, ErrNotCounting
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
		if invariants.Enabled && terms[i] > 0 {
			invariants.Check(c.ending.IsZero() && !c.noted,
				"lease %x is renewed, and ends, or the log has what is left of it", id)
		}
	}
	return noted, nil
}

// Due is what has to be done about leases.
type Due struct {
	// Ended are the leases that ran out.
	Ended []int64
	// Notes are of leases whose rest is to be noted in the log.
	Notes []*storepb.LeaseCheckpoint_Lease
	// Paused: the process was paused, nothing ends, and every lease got more time.
	Paused bool
	// More: leases have run out that were not returned, because others are ending.
	More bool
}

// Due returns what is due, and marks it as being done. A lease whose end was returned a while ago
// and did not come is returned again.
func (l *Lessor) Due() (found Due) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.mu.active {
		return found
	}
	now := l.now()
	silence := now.Sub(l.mu.ticked)
	found.Paused = silence > Tick+pauseTolerance
	l.mu.ticked = now
	if found.Paused {
		l.spareLocked(now, silence)
		return found
	}
	if invariants.Enabled && len(l.mu.leases) <= 16*invariants.Small {
		l.checkInvariantEndingLocked()
	}
	l.endAgainLocked(now, &found)
	for len(l.mu.due) > 0 && !now.Before(l.mu.due[0].at) {
		if l.mu.ending >= endsAtOnce || len(found.Notes) >= MaxNotes {
			found.More = true
			break
		}
		d := heap.Pop(&l.mu.due).(due)
		c := d.lease
		if l.mu.leases[d.id] != c {
			continue // it is gone
		}
		switch {
		case !c.ending.IsZero():
			continue // it was due twice
		case !now.Before(c.deadline):
			keys := l.mu.keys[d.id]
			if l.mu.ending > 0 && l.mu.endingKeys+keys > endKeys {
				heap.Push(&l.mu.due, d)
				found.More = true
				return found
			}
			c.ending, c.keys = now, keys
			l.mu.ending++
			l.mu.endingKeys += keys
			found.Ended = append(found.Ended, d.id)
			l.mu.ends = append(l.mu.ends, due{now.Add(endAgain), d.id, c})
			continue
		case !now.Before(c.noteAt):
			left := c.deadline.Sub(now)
			c.noted, c.noteAt = true, now.Add(l.checkpointAfter)
			found.Notes = append(found.Notes, &storepb.LeaseCheckpoint_Lease{Id: d.id,
				LeftMillis: uint64(max(1, left.Milliseconds()))})
		}
		heap.Push(&l.mu.due, due{earlier(c.deadline, c.noteAt), d.id, c})
	}
	return found
}

// checkInvariantEndingLocked checks the number of leases that are ending, and that of their keys.
func (l *Lessor) checkInvariantEndingLocked() {
	ending, keys := 0, 0
	for _, c := range l.mu.leases {
		if !c.ending.IsZero() {
			ending, keys = ending+1, keys+c.keys
		}
	}
	invariants.Check(ending == l.mu.ending && keys == l.mu.endingKeys,
		"%d leases with %d keys are ending, and %d with %d are counted", ending, keys, l.mu.ending,
		l.mu.endingKeys)
}

// endAgainLocked returns the ends again that have not come.
func (l *Lessor) endAgainLocked(now time.Time, found *Due) {
	for len(l.mu.ends) > 0 {
		first := l.mu.ends[0]
		there := l.mu.leases[first.id] == first.lease
		if there && (now.Before(first.at) || len(found.Ended) >= endsAtOnce) {
			return
		}
		l.mu.ends[0] = due{}
		l.mu.ends = l.mu.ends[1:]
		if there {
			found.Ended = append(found.Ended, first.id)
			l.mu.ends = append(l.mu.ends, due{now.Add(endAgain), first.id, first.lease})
		}
	}
}

// Counting says whether there is anything to count down.
func (l *Lessor) Counting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.active && len(l.mu.leases) > 0 {
		return true
	}
	l.mu.ticked = l.now() // not a pause
	return false
}

// Remaining returns the term of a lease, and the rest of it, which has a meaning only on the member
// that counts. ok is false if the lease does not exist.
func (l *Lessor) Remaining(id int64) (term, left time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.mu.leases[id]
	if c == nil {
		return 0, 0, false
	}
	return c.term, max(0, c.deadline.Sub(l.now())), true
}

// Keys is how many keys a lease has.
func (l *Lessor) Keys(id int64) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.keys[id]
}

// Count is how many leases there are.
func (l *Lessor) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.leases)
}

// IDs lists the leases that exist, by when they run out, and those that run out together by
// ascending id. On a member that does not count, that is when they would without a renewal.
func (l *Lessor) IDs() []int64 {
	type ending struct {
		id int64
		at time.Time
	}
	l.mu.Lock()
	all := make([]ending, 0, len(l.mu.leases))
	for id, c := range l.mu.leases {
		all = append(all, ending{id, c.deadline})
	}
	l.mu.Unlock()
	slices.SortFunc(all, func(a, b ending) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.id, b.id))
	})
	ids := make([]int64, len(all))
	for i, e := range all {
		ids[i] = e.id
	}
	return ids
}
