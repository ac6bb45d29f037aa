package consumer

import "time"

const (
	// LookInterval is the interval at which the leader looks at all consumers. LookTimeout limits one
	// look.
	LookInterval = 10 * time.Second
	LookTimeout  = 30 * time.Second
	// A consumer is dropped after it has been behind by more than its keep for a period: the length of
	// its keep, and at most DropAfter.
	DropAfter = 10 * time.Minute
	// LookGap is the longest time between two looks for which a consumer counts as behind during the
	// time between them. It allows for two slow looks.
	LookGap = 2 * (LookInterval + LookTimeout)
)

// Overdue remembers since when consumers have been behind by more than their keep, by the monotonic
// clock. It is used by one goroutine. Its zero value is ready.
type Overdue struct {
	term   uint64
	looked int64
	// first is the time at which each consumer was first seen behind, in looks without a gap.
	first map[string]int64
}

// Look is one look at all consumers.
type Look struct {
	of   *Overdue
	now  int64
	next map[string]int64
}

// Look begins a look during the leadership of a term.
func (o *Overdue) Look(term uint64, now int64) Look {
	if o.term != term || now-o.looked > int64(LookGap) {
		o.first = nil
	}
	o.term = term
	return Look{of: o, now: now, next: map[string]int64{}}
}

// Since returns how long a consumer, which is behind by more than its keep now, has been so.
func (l Look) Since(key []byte) time.Duration {
	first, seen := l.of.first[string(key)]
	if !seen {
		first = l.now
	}
	l.next[string(key)] = first
	return time.Duration(l.now - first)
}

// Done ends the look. Consumers that were not seen behind in this look start again.
func (l Look) Done() { l.of.looked, l.of.first = l.now, l.next }
