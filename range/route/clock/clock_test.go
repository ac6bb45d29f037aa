package clock

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// What a sample says about a later moment is never below the clock that was sampled, and says by
// how much that may be wrong.
func TestClockEstimateFollowsTheSampledClock(t *testing.T) {
	var p Clock
	start := time.Now()
	clock := func(after time.Duration) hlc.Timestamp {
		return hlc.Timestamp{Wall: int64(time.Hour + after)}
	}
	const ms = time.Millisecond
	// Sent at 0, answered by a node at 2 ms, received at 5 ms.
	p.LearnMaxOffset(uint64((250 * ms).Microseconds()))
	p.Sample(clock(2*ms), start, start.Add(5*ms))
	at, short, ok := p.newest.Load().estimate(start.Add(1000 * ms))
	if !ok || at != clock(1002*ms) || short != ms {
		t.Fatal(at, short, ok)
	}
	// It was not later than the answer.
	if at, ok := p.newest.Load().earliest(start.Add(1000 * ms)); !ok || at != clock(997*ms) {
		t.Error(at)
	}
	// As time goes on, the sender's estimate has both as its ends, and none of them below the
	// session.
	s := &Clock{}
	s.newest.Store(&sample{now: clock(2 * ms), since: time.Now().Add(-1000 * ms),
		received: time.Now().Add(-995 * ms)})
	earliest, latest, short, ok := s.Estimate()
	if width := latest.Wall - earliest.Wall; !ok || short < ms || earliest.Less(clock(997*ms)) ||
		width < int64(5*ms)-int64(ms/10) || width > int64(5*ms)+int64(ms/10) {
		t.Error(earliest, latest, short, ok)
	}
	s.RaiseSession(clock(time.Hour))
	if earliest, latest, _, _ := s.Estimate(); earliest != clock(time.Hour) ||
		latest != earliest {
		t.Error(earliest, latest)
	}
	// A slower one says no better, and one that took too long says nothing.
	p.Sample(clock(1008*ms), start.Add(1000*ms), start.Add(1016*ms))
	p.Sample(clock(900*ms), start.Add(800*ms), start.Add(1000*ms))
	if at, _, _ := p.newest.Load().estimate(start.Add(2000 * ms)); at != clock(2002*ms) {
		t.Error(at)
	}
	// A better one does, and so does any when the sample has grown old.
	p.Sample(clock(3000*ms), start.Add(3000*ms), start.Add(3001*ms))
	if at, _, _ := p.newest.Load().estimate(start.Add(3001 * ms)); at != clock(3001*ms) {
		t.Error(at)
	}
	p.Sample(clock(14040*ms), start.Add(14000*ms), start.Add(14050*ms))
	if at, _, _ := p.newest.Load().estimate(start.Add(14050 * ms)); at != clock(14090*ms) {
		t.Error(at)
	}
}

// What one node has said is not believed for long if others say what cannot be at the same time:
// its clock was wrong.
func TestClockEstimateOfAWrongClock(t *testing.T) {
	start := time.Now()
	clock := func(after time.Duration) hlc.Timestamp {
		return hlc.Timestamp{Wall: int64(time.Hour + after)}
	}
	const ms = time.Millisecond
	for name, x := range map[string]struct {
		bound, expected time.Duration
	}{
		"": {250 * ms, 3000 * ms}, "no bound is known": {0, 1000 * ms},
		"they may be far apart": {time.Second, 1000 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			var p Clock
			p.LearnMaxOffset(uint64(x.bound.Microseconds()))
			p.Sample(clock(0), start, start.Add(ms))
			// two seconds slow
			p.Sample(clock(-1000*ms), start.Add(1000*ms), start.Add(1001*ms))
			p.Sample(clock(3000*ms), start.Add(3000*ms), start.Add(3001*ms))
			if at, _, _ := p.newest.Load().estimate(start.Add(3000 * ms)); at != clock(x.expected) {
				t.Errorf("it is %v", time.Duration(at.Wall)-time.Hour)
			}
		})
	}
}

// The session only rises, and is an answer's own timestamp.
func TestSessionOnlyRises(t *testing.T) {
	var s session
	s.observe(nil)
	if !s.load().IsZero() {
		t.Fatal("not unset")
	}
	high := &kvpb.Timestamp{Wall: 10, Logical: 3}
	s.observe(high)
	s.observe(&kvpb.Timestamp{Wall: 10, Logical: 2})
	s.observe(&kvpb.Timestamp{Wall: 9, Logical: 9})
	if s.highest.Load() != high {
		t.Fatal(s.load())
	}
}
