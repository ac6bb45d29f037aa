package lease

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// clocked is a lessor with a clock that a test moves.
type clocked struct {
	*Lessor
	nanos int64
}

func newClocked(checkpointAfter time.Duration) *clocked {
	c := &clocked{nanos: 1e12}
	c.Lessor = New(func() int64 { return c.nanos }, checkpointAfter)
	return c
}

func (c *clocked) pass(d time.Duration) { c.nanos += int64(d) }

// grant has leases with a term come to be.
func (c *clocked) grant(term time.Duration, ids ...int64) {
	for _, id := range ids {
		c.Changed([]Change{{ID: id, TTLMillis: uint64(term.Milliseconds())}}, nil)
	}
}

// run lets time pass in ticks, and returns everything that was due.
func (c *clocked) run(d time.Duration) (all Due) {
	for end := c.nanos + int64(d); c.nanos < end; {
		c.pass(Tick)
		found := c.Due()
		all.Ended = append(all.Ended, found.Ended...)
		all.Notes = append(all.Notes, found.Notes...)
		all.Paused = all.Paused || found.Paused
	}
	return all
}

func (c *clocked) left(t *testing.T, id int64) time.Duration {
	t.Helper()
	_, left, ok := c.Remaining(id)
	if !ok {
		t.Fatalf("lease %d does not exist", id)
	}
	return left
}

// A member that does not lead ends nothing and renews nothing.
func TestOnlyTheLeaderCounts(t *testing.T) {
	l := newClocked(time.Hour)
	l.grant(time.Second, 1)
	if due := l.run(time.Minute); len(due.Ended) > 0 || l.Counting() {
		t.Errorf("a member that does not lead ends %v", due.Ended)
	}
	if _, _, err := renew(l, 1); !errors.Is(err, ErrNotCounting) {
		t.Errorf("a renewal by a member that does not lead: %v", err)
	}
	l.Activate(true)
	if due := l.run(999 * time.Millisecond); len(due.Ended) != 1 || due.Paused {
		t.Errorf("in a full term under a new leader %v ended", due)
	}
}

// A lease whose end is under way is not renewed, and its end is returned again if it does not come.
func TestEndedIsNotRenewed(t *testing.T) {
	l := newClocked(time.Hour)
	l.Activate(true)
	l.grant(time.Second, 1, 2)
	l.run(500 * time.Millisecond)
	if term, noted, err := renew(l, 2); err != nil || noted || term != time.Second {
		t.Fatal(term, noted, err)
	}
	if due := l.run(750 * time.Millisecond); !slices.Equal(due.Ended, []int64{1}) {
		t.Fatalf("%v ended, and 2 was renewed", due.Ended)
	}
	for _, id := range []int64{1, 3} {
		if _, _, err := renew(l, id); !errors.Is(err, command.ErrLeaseNotFound) {
			t.Errorf("a renewal of lease %d: %v", id, err)
		}
	}
	l.Changed([]Change{{ID: 2}}, nil)
	if due := l.run(endAgain + Tick); !slices.Equal(due.Ended, []int64{1}) {
		t.Errorf("the end that did not come is followed by those of %v", due.Ended)
	}
	if ids := l.IDs(); !slices.Equal(ids, []int64{1}) || l.Count() != 1 {
		t.Errorf("the leases are %v", ids)
	}
}

// A new leader goes on from the last note, and a renewal waits until the log has taken that back.
func TestNotes(t *testing.T) {
	l := newClocked(5 * time.Minute)
	l.Activate(true)
	l.grant(10*time.Minute, 1)
	due := l.run(5 * time.Minute)
	if len(due.Notes) != 1 || due.Notes[0].LeftMillis != uint64(5*time.Minute/time.Millisecond) {
		t.Fatalf("after half of the term the notes are %v", due.Notes)
	}
	if _, noted, err := renew(l, 1); err != nil || !noted {
		t.Fatalf("a renewal behind a note: noted %v, %v", noted, err)
	}
	change := Change{ID: 1, TTLMillis: 600_000, LeftMillis: due.Notes[0].LeftMillis, Checkpoint: true}
	l.Changed([]Change{change}, nil)
	l.Activate(false)
	l.Activate(true)
	if left := l.left(t, 1); left != 5*time.Minute {
		t.Errorf("a new leader gives it %v", left)
	}
	change.LeftMillis = 0
	l.Changed([]Change{change}, nil)
	if _, noted, err := renew(l, 1); err != nil || noted {
		t.Errorf("a renewal when the note was taken back: noted %v, %v", noted, err)
	}
	if left := l.left(t, 1); left != 10*time.Minute {
		t.Errorf("a renewed lease has %v left", left)
	}
}

// After a pause every lease gets a full term, once until it is renewed.
func TestPauseSparesOnce(t *testing.T) {
	l := newClocked(time.Hour)
	l.Activate(true)
	l.grant(10*time.Second, 1)
	l.run(9 * time.Second)
	for pauses := range 2 {
		l.pass(time.Minute)
		if due := l.Due(); !due.Paused || len(due.Ended) > 0 {
			t.Fatalf("after a pause: %+v", due)
		}
		want := 10 * time.Second
		if pauses == 1 {
			want = 4 * time.Second // the second pause gives back what it has taken, and no more
		}
		if left := l.left(t, 1); left != want {
			t.Errorf("after %d pauses it has %v left, want %v", pauses+1, left, want)
		}
		l.run(6 * time.Second)
	}
	if n := l.Count(); n != 1 {
		t.Errorf("%d leases", n)
	}
}

// Leases that were revoked long before their end leave next to nothing behind.
func TestRevokedLeasesAreForgotten(t *testing.T) {
	l := newClocked(time.Hour)
	l.Activate(true)
	for id := range int64(5000) {
		l.grant(time.Hour, id+1)
		l.Changed([]Change{{ID: id + 1}}, nil)
	}
	if n := len(l.mu.due); n > 1100 {
		t.Errorf("%d of no lease are due", n)
	}
}

// Whatever is granted, renewed and revoked: a lease ends when Due is first called behind its
// deadline, as a naive list of deadlines says, and the keys of each are counted.
func TestDeadlines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newClocked(time.Hour)
		l.Activate(true)
		deadlines, terms, held := map[int64]int64{}, map[int64]time.Duration{}, map[int64]int{}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			id := rapid.Int64Range(1, 8).Draw(t, "lease")
			switch rapid.IntRange(0, 5).Draw(t, "action") {
			case 0:
				if deadlines[id] == 0 {
					term := time.Duration(rapid.IntRange(1, 3000).Draw(t, "term")) * time.Millisecond
					l.grant(term, id)
					terms[id], deadlines[id] = term, l.nanos+int64(term)
				}
			case 1:
				_, _, err := renew(l, id)
				if (err == nil) != (deadlines[id] > 0) {
					t.Fatalf("renew %d, whose deadline is %d: %v", id, deadlines[id], err)
				}
				if err == nil {
					deadlines[id] = l.nanos + int64(terms[id])
				}
			case 2:
				l.Changed([]Change{{ID: id}}, nil)
				delete(deadlines, id)
			case 3:
				n := rapid.IntRange(-held[id], 3).Draw(t, "keys")
				held[id] += n
				l.Changed(nil, map[int64]int{id: n})
				if l.Keys(id) != held[id] {
					t.Fatalf("lease %d counts %d keys, and has %d", id, l.Keys(id), held[id])
				}
			default:
				l.pass(time.Duration(rapid.IntRange(0, 250).Draw(t, "ms")) * time.Millisecond)
				for _, ended := range l.Due().Ended {
					if at, ok := deadlines[ended]; !ok || at > l.nanos {
						t.Fatalf("lease %d ended %v early", ended, time.Duration(at-l.nanos))
					}
					delete(deadlines, ended)
					l.Changed([]Change{{ID: ended}}, nil)
				}
				for id, at := range deadlines {
					if at <= l.nanos {
						t.Fatalf("lease %d has not ended %v after its deadline", id, time.Duration(l.nanos-at))
					}
				}
			}
		}
	})
}

type renewer interface {
	Renew([]int64, []time.Duration) ([]*storepb.LeaseCheckpoint_Lease, error)
}

// renew renews one lease.
func renew(l renewer, id int64) (term time.Duration, noted bool, err error) {
	terms := make([]time.Duration, 1)
	list, err := l.Renew([]int64{id}, terms)
	if err == nil && terms[0] == 0 && len(list) == 0 {
		err = command.ErrLeaseNotFound
	}
	return terms[0], len(list) > 0, err
}
