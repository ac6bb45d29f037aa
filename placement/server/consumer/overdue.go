package consumer

import "time"

const (
	// LookInterval is how often the leader looks at all consumers, and LookTimeout bounds one look.
	LookInterval = 10 * time.Second
	LookTimeout  = 30 * time.Second
	// DropAfter bounds how long a consumer is seen beyond its keep until it is dropped: as long as
	// its keep, and no longer than this.
	DropAfter = 10 * time.Minute
	// LookGap is the longest time between two looks, two slow ones, for a consumer to count as
	// behind in between.
	LookGap = 2 * (LookInterval + LookTimeout)
)

// Overdue remembers since when consumers are beyond their keep, by the monotonic clock. It belongs
// to the goroutine that looks at them. Its zero value is ready.
type Overdue struct {
	term   uint64
	looked int64
	// first is when each was first seen so, in looks without a gap.
	first map[string]int64
}

// Look is one look at all consumers.
type Look struct {
	of   *Overdue
	now  int64
	next map[string]int64
}

// Look begins one, during the leadership of a term.
func (o *Overdue) Look(term uint64, now int64) Look {
	if o.term != term || now-o.looked > int64(LookGap) {
		o.first = nil
	}
	o.term = term
	return Look{of: o, now: now, next: map[string]int64{}}
}

// Since returns how long a consumer, which is beyond its keep now, has been so.
func (l Look) Since(key []byte) time.Duration {
	first, seen := l.of.first[string(key)]
	if !seen {
		first = l.now
	}
	l.next[string(key)] = first
	return time.Duration(l.now - first)
}

// Done ends the look: consumers that were not seen beyond their keep start again.
func (l Look) Done() { l.of.looked, l.of.first = l.now, l.next }
