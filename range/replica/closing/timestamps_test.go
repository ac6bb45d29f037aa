package closing

import (
	"math/rand/v2"
	"testing"

	"github.com/tidemarkdb/tidemark/hlc"
)

func at(wall int64) hlc.Timestamp { return hlc.Timestamp{Wall: wall} }

// place is a place whose set closes timestamps.
type place struct {
	closed int64
	gone   bool
}

func (p *place) Closed() int64 { return p.closed }
func (p *place) Gone() bool    { return p.gone }
func (p *place) Remove() int64 { return p.closed }

type source struct {
	closed hlc.Timestamp
	index  uint64
}

func (s source) Closed() (hlc.Timestamp, uint64) { return s.closed, s.index }

// What is told beside the log counts when the log is applied so far, and not before.
func TestNotesCountWhenTheLogIsApplied(t *testing.T) {
	type note struct {
		closed int64
		index  uint64
	}
	random := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		var s Timestamps
		var notes []note
		applied, last := uint64(0), at(0)
		for range 50 {
			applied += random.Uint64N(3)
			n := note{closed: random.Int64N(100), index: random.Uint64N(60)}
			notes = append(notes, n)
			s.Note(at(n.closed), n.index, applied)
			most, sure := int64(0), int64(0)
			for i, n := range notes {
				if n.index > applied {
					continue
				}
				most = max(most, n.closed)
				// Of what does not count yet the replica may forget all but the latest.
				if i == len(notes)-1 {
					sure = n.closed
				}
			}
			closed := s.Closed(applied)
			if at(most).Less(closed) || closed.Less(at(sure)) || closed.Less(last) {
				t.Fatalf("%s is closed after %v, with %d applied; before it was %s", closed, notes, applied,
					last)
			}
			last = closed
		}
	}
}

func TestALaterNoteCountsInTime(t *testing.T) {
	var s Timestamps
	s.Note(at(5), 10, 7)
	s.Note(at(4), 12, 7) // later, and worth less
	for applied, want := range map[uint64]hlc.Timestamp{9: {}, 10: at(5), 11: at(5)} {
		copied := s
		if got := copied.Closed(applied); got != want {
			t.Errorf("with %d applied %s is closed, and not %s", applied, got, want)
		}
	}
}

func TestPromisesGrowWithinALeadership(t *testing.T) {
	var s Timestamps
	if got := s.Promise(at(7)); got != at(7) {
		t.Error(got)
	}
	if got := s.Promise(at(3)); got != at(7) || s.Promised() != at(7) {
		t.Errorf("%s is promised after an earlier promise", got)
	}
	if !s.Closed(100).IsZero() {
		t.Error("a promise counts here before what was proposed before it is applied")
	}
	s.Begin()
	if !s.Promised().IsZero() {
		t.Error("a new leadership has promised something")
	}
}

// What is closed in a group's sleep is promised when it ends.
func TestSleepIsPromised(t *testing.T) {
	var s Timestamps
	s.Awake()
	p := &place{closed: 8}
	s.Sleep(p)
	if !s.Asleep() || s.Closed(0) != at(8) {
		t.Errorf("%s is closed in sleep", s.Closed(0))
	}
	p.closed = 9
	s.Awake()
	if s.Asleep() || s.Promised() != at(9) || s.Closed(0) != at(9) {
		t.Errorf("%s is promised, and %s closed, after sleep", s.Promised(), s.Closed(0))
	}
	p.closed = 20
	if s.Closed(0) != at(9) {
		t.Error("a place that was given up counts")
	}
	s.Sleep(&place{closed: 30, gone: true})
	if s.Asleep() || s.Closed(0) != at(9) {
		t.Error("a place that is gone counts")
	}
}

func TestSleepUnderAnother(t *testing.T) {
	var s Timestamps
	s.SleepIn(source{closed: at(6), index: 4})
	if got := s.Closed(3); !got.IsZero() {
		t.Errorf("%s is closed for a replica that has not applied so far", got)
	}
	if got := s.Closed(4); got != at(6) {
		t.Errorf("%s is closed", got)
	}
	s.SleepIn(nil)
	if got := s.Closed(4); !got.IsZero() {
		t.Errorf("%s is closed, and nothing tells so any more", got)
	}
}
