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
	// pause after a call whose result has More set.
	Tick     = 250 * time.Millisecond
	BusyTick = 25 * time.Millisecond
	// pauseTolerance is the delay of a tick above which the leader assumes that its process was
	// paused and could not hear renewals.
	pauseTolerance = 2 * time.Second
	// endsAtOnce bounds the leases that are ending at a time, and endKeys the sum of their keys,
	// except that a single lease may have more. So the members apply the ends of many leases in
	// portions, with other commands in between.
	endsAtOnce = 128
	endKeys    = 2048
	// MaxNotes bounds the leases in one checkpoint command.
	MaxNotes = 1024
	// noteSlack is the most by which a checkpoint may understate the remaining time.
	noteSlack = 2 * time.Second
	// endAgain is the time after which the end of a lease is proposed again.
	endAgain = 4 * pauseTolerance
)

var (
	// ErrNotCounting means that this member does not lead, and counts no lease down.
	ErrNotCounting = errors.New("leases are not counted down by this member")
)

// Change is the new state of a lease.
type Change struct {
	ID int64
	// TTLMillis is the term; 0 if the lease is gone. LeftMillis is the remaining time in the last
	// checkpoint; 0 without one.
	TTLMillis, LeftMillis uint64
	// Checkpoint is set if only LeftMillis has changed.
	Checkpoint bool
}

// Lessor knows which leases exist, and on the leader the remaining time of each. It counts on the
// monotonic clock. Its methods may be called from any goroutine.
type Lessor struct {
	// now returns a time that ascends like the monotonic clock, and is unrelated to wall time.
	now func() time.Time
	// checkpointAfter is the part of a term after which a checkpoint is due.
	checkpointAfter time.Duration
	mu              struct {
		sync.Mutex
		leases map[int64]*countdown
		// due has an element for each lease that counts down, ordered by the time of the next look.
		// A lease that was renewed is put in again when that time comes.
		due dueHeap
		// ends are the leases whose end was returned, by the time at which it is returned again;
		// leases that are gone are removed from the front. ending counts the leases that still
		// exist, and endingKeys their keys.
		ends               []due
		ending, endingKeys int
		// keys is the number of keys of each lease, for leases with keys.
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
	// left is the remaining time in the last checkpoint; 0 if there is none since the lease was
	// granted or renewed. noted is set if a checkpoint was proposed, whether or not it is applied
	// yet.
	left  time.Duration
	noted bool
	// noteAt is when the next checkpoint is due.
	noteAt time.Time
	// ending is when the end was first returned by Due; zero before. From then on the lease cannot
	// be renewed.
	ending time.Time
	// keys is the number of its keys at that time.
	keys int
	// spared is set if the lease got a full term after a pause of the process, and was not renewed
	// since.
	spared bool
}

// New returns a lessor without leases, which counts on a clock once it is active. checkpointAfter
// is the part of a lease's term after which a checkpoint is due.
func New(clock hlc.Monotonic, checkpointAfter time.Duration) *Lessor {
	l := &Lessor{now: func() time.Time { return time.Unix(0, clock()) },
		checkpointAfter: checkpointAfter}
	l.mu.leases, l.mu.keys = map[int64]*countdown{}, map[int64]int{}
	return l
}

// Now is the time by which leases are counted down. It ascends like the monotonic clock, and is
// unrelated to wall time.
func (l *Lessor) Now() time.Time { return l.now() }

// Replace replaces all leases by the leases of the state; keys is the number of keys of each.
func (l *Lessor) Replace(leases []Change, keys map[int64]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.mu.leases)
	clear(l.mu.keys)
	l.mu.due, l.mu.ends, l.mu.ending, l.mu.endingKeys = nil, nil, 0, 0
	l.changedLocked(leases, keys)
}

// Changed applies changes of the state; keys is the change in the number of keys of each lease.
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
			l.mu.ending-- // the lease is gone, or another lease has its id
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
				// The lease was renewed, or granted anew, before this checkpoint was applied. A
				// correct checkpoint follows.
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

// tidyLocked rebuilds due if most of its elements are leases that are gone.
func (l *Lessor) tidyLocked() {
	if len(l.mu.due) <= 2*len(l.mu.leases)+1024 {
		return
	}
	l.mu.due = slices.DeleteFunc(l.mu.due, func(d due) bool { return l.mu.leases[d.id] != d.lease })
	heap.Init(&l.mu.due)
}

func millis(n uint64) time.Duration { return time.Duration(n) * time.Millisecond }

// Activate starts counting, with a full term for every lease, or with the remaining time in its
// last checkpoint. With active false it stops counting.
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
// a full term from now on. A lease that got a full term in this way before, and was not renewed
// since, gets only the time of the pause, so that a process that pauses again and again does not
// keep the leases of dead owners.
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
// or whose end was returned by Due. The caller must verify afterwards that this member still leads;
// otherwise its deadlines have no meaning. noted are the leases whose deadlines were not moved: the
// log may have a checkpoint of them, which a later leader would use. The caller revokes the
// checkpoint by the log, and tries again. The error is ErrNotCounting.
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

// Due are the commands that are due for leases.
type Due struct {
	// Ended are the leases that have expired.
	Ended []int64
	// Notes are the checkpoints to be recorded in the log.
	Notes []*storepb.LeaseCheckpoint_Lease
	// Paused is set if the process was paused: no lease ends, and every lease got more time.
	Paused bool
	// More is set if further leases have expired that were not returned, because others are still
	// ending.
	More bool
}

// Due returns the due commands, and marks them as returned. The end of a lease is returned again if
// it was not applied within endAgain.
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
			continue // the lease is gone
		}
		switch {
		case !c.ending.IsZero():
			continue // the lease was in the heap twice
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

// checkInvariantEndingLocked checks ending and endingKeys.
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

// endAgainLocked returns again the ends that were not applied in time.
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

// Counting reports whether any lease counts down here.
func (l *Lessor) Counting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.active && len(l.mu.leases) > 0 {
		return true
	}
	l.mu.ticked = l.now() // not a pause
	return false
}

// Remaining returns the term of a lease and its remaining time, which is meaningful only on the
// member that counts. ok is false if the lease does not exist.
func (l *Lessor) Remaining(id int64) (term, left time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.mu.leases[id]
	if c == nil {
		return 0, 0, false
	}
	return c.term, max(0, c.deadline.Sub(l.now())), true
}

// Keys is the number of keys of a lease.
func (l *Lessor) Keys(id int64) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.keys[id]
}

// Count is the number of leases.
func (l *Lessor) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.leases)
}

// IDs lists the leases in the order of their expiry, and by ascending id where the expiries are
// equal. On a member that does not count, the order is that without renewals.
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
