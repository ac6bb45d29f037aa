package leadership

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/txn"
)

const ahead = 500 * time.Millisecond

// elected is a leadership that has begun at a time, behind entries of earlier terms.
func elected(term uint64, now int64) *State {
	l := &State{}
	l.Change(group.Leadership{IsLeader: true, Term: term})
	l.EndEpoch()
	l.Begin(now)
	l.TakeLow(now, ahead)
	return l
}

// The gate opens when an entry of the leader's own term is applied, and not before.
func TestLeadershipServesBehindItsOwnEntry(t *testing.T) {
	l := elected(3, 1000)
	if l.MayServe(&storage.Record{Term: 2}) {
		t.Error("it serves before an entry of its term is applied")
	}
	applied := &storage.Record{Term: 3}
	if !l.MayServe(applied) {
		t.Fatal("it does not serve")
	}
	l.Serve(applied, 2000)
	if !l.serving || l.MayServe(applied) {
		t.Error("the gate is not open, or is to be opened twice")
	}
	l.Change(group.Leadership{Term: 4})
	if l.serving || l.MayServe(&storage.Record{Term: 4}) {
		t.Error("a follower serves")
	}
}

// A barrier keeps the gate closed until it, or something behind it, has come back.
func TestBarrierClosesTheGate(t *testing.T) {
	l, applied := elected(3, 1000), &storage.Record{Term: 3}
	l.Serve(applied, 2000)
	l.RaiseBarrier(7)
	for _, sequence := range []uint64{5, 6} {
		if l.CameBack(sequence); l.serving || l.MayServe(applied) {
			t.Fatalf("it serves after proposal %d, the barrier is 7", sequence)
		}
	}
	if l.CameBack(7); !l.MayServe(applied) {
		t.Error("it does not serve behind the barrier")
	}
	l.handingOver = true
	if l.MayServe(applied) {
		t.Error("it serves while it hands over")
	}
}

// The low-water mark is above all that earlier leaders can have served, but for the first leader of
// a log, before which there was none.
func TestLowWaterMark(t *testing.T) {
	const now = int64(time.Hour)
	later := elected(3, now)
	if want := now + int64(ahead); later.low.Wall != want {
		t.Errorf("it begins at %d, want %d", later.low.Wall, want)
	}
	written := hlc.Timestamp{Wall: now + int64(time.Minute), Logical: 9}
	first := later.Serve(&storage.Record{Term: 3, Highest: written}, now)
	if first || !written.Less(later.low) {
		t.Errorf("first %t, the low-water mark %s is not above what is applied", first, later.low)
	}
	before := later.low
	later.ClockWentForward(now+int64(time.Second), ahead)
	if later.low.Less(before) {
		t.Error("the low-water mark went back")
	}

	earliest := elected(1, now)
	earliest.firstTerm = 1
	if !earliest.Serve(&storage.Record{Term: 1}, now) || earliest.low.Wall != now {
		t.Errorf("the first leader of a log begins at %d, want %d", earliest.low.Wall, now)
	}
	earliest.RaiseBarrier(1)
	if earliest.Serve(&storage.Record{Term: 1}, now) {
		t.Error("it is the first a second time, and has served")
	}
}

// The clients of transactions are given time after an election, and none after a leader has handed
// over a moment ago.
func TestLivenessFloor(t *testing.T) {
	const now = int64(time.Hour)
	const given = now - int64(txn.Abandoned-electedTime)
	for name, test := range map[string]struct {
		handedOver HandedOver
		want       int64
	}{
		"election":             {HandedOver{}, given},
		"handed over":          {HandedOver{2, now - int64(handOverTime) + 1}, 0},
		"handed over long ago": {HandedOver{2, now - int64(handOverTime)}, given},
		"an earlier leader's":  {HandedOver{1, now}, given},
	} {
		l := elected(3, now)
		l.handedOver = test.handedOver
		l.Serve(&storage.Record{Term: 3, CommandTerm: 2}, now)
		if l.livenessFloor != test.want {
			t.Errorf("%s: the floor is %d, want %d", name, l.livenessFloor, test.want)
		}
	}
}

// A leader that hands over speaks for all heartbeats if it has served for as long as clients may be
// silent, and not if it was elected a moment ago or does not serve.
func TestHeardAll(t *testing.T) {
	const now = int64(time.Hour)
	for name, test := range map[string]struct {
		served time.Duration
		serves bool
		floor  bool
		want   bool
	}{
		"just elected":       {time.Millisecond, true, true, false},
		"almost long enough": {electedTime - 1, true, true, false},
		"long enough":        {electedTime, true, true, true},
		"never served":       {time.Hour, false, true, false},
		"was handed over to": {time.Millisecond, true, false, true},
		"does not serve":     {time.Hour, false, false, false},
	} {
		l := elected(3, now)
		if test.serves {
			l.Serve(&storage.Record{Term: 3, CommandTerm: 2}, now)
		}
		if !test.floor {
			l.livenessFloor = 0
		}
		l.HandOver(2, now+int64(test.served))
		if l.HeardAll() != test.want {
			t.Errorf("%s: %t, want %t", name, l.HeardAll(), test.want)
		}
	}
}

// An epoch is over with its term, and with all that was given up within it; clients name it so.
func TestEpochs(t *testing.T) {
	l := elected(3, 1000)
	e := l.Epoch()
	if !l.Is(e) || !e.IsWire(100, e.Wire(100)) || e.IsWire(101, e.Wire(100)) {
		t.Error("the present epoch is not itself")
	}
	l.EndEpoch()
	if l.Is(e) || l.Epoch().IsWire(100, e.Wire(100)) {
		t.Error("an epoch goes on when what was pending is given up")
	}
	e = l.Epoch()
	l.Change(group.Leadership{IsLeader: true, Term: 4})
	if l.Is(e) {
		t.Error("an epoch goes on in another term")
	}
}
