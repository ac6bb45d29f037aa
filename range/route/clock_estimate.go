package route

import (
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
)

const (
	// sampleTicks of the watchdog lie between two samples of the cluster's time.
	sampleTicks = 5
	// sampleTrip is the longest round trip that makes a sample: the time is overestimated by as much.
	sampleTrip = 100 * time.Millisecond
	// sampleAge is when a sample gives way to another one that is worse.
	sampleAge = 10 * time.Second
	// clockDrift is how much the clock of this machine may run ahead of, or behind, the cluster's,
	// as a part of the time that passed.
	clockDrift = 1.0 / 1000
	// clockJump is how far the wall clock and the monotonic clock may come apart before neither is
	// believed: the machine slept, or its clock was set.
	clockJump = 50 * time.Millisecond
	// clockWrong is by how many times the bound between clocks what two nodes say may differ: they
	// are one bound apart, and one of them may have been taken ahead by what others have said, or
	// by an election. If it is more, one of them is wrong, and the latest word counts.
	clockWrong = 4
)

// clockEstimate is what time it is in the cluster, as far as answers have shown: the clock of some
// node at a moment. What it points to does not change.
type clockEstimate struct {
	newest atomic.Pointer[clockSample]
	// ticks is when the last sample was taken, by the watchdog's count.
	ticks atomic.Uint32
}

// clockSample says that a node's clock stood at now, at or after the moment since, and at or before
// received. So that clock stands, at any later moment, at or below now + (the time passed since
// then): the round trip is counted in.
type clockSample struct {
	now      hlc.Timestamp
	since    time.Time
	received time.Time
}

// sample says whether the request that is about to be sent is to sample the time, and when that is.
func (s *Sender) sample() (time.Time, bool) {
	now := s.ticks.Load()
	last := s.clock.ticks.Load()
	if now-last < sampleTicks && s.clock.newest.Load() != nil {
		return time.Time{}, false
	}
	s.clock.ticks.Store(now)
	return time.Now(), true
}

// observe takes in what a node's clock stood at. bound is how far the clocks of the cluster may be
// apart; zero if that is not known.
func (p *clockEstimate) observe(now hlc.Timestamp, sent, received time.Time, bound time.Duration) {
	trip := received.Sub(sent)
	if now.IsZero() || trip > sampleTrip {
		return
	}
	next := &clockSample{now: now, since: sent, received: received}
	for {
		old := p.newest.Load()
		if old != nil {
			at, _, ok := old.estimate(received)
			lower := at.Less(now.Add(trip))
			wrong := bound > 0 && now.Wall-at.Wall > clockWrong*int64(bound)
			if ok && received.Sub(old.since) < sampleAge && lower && !wrong {
				return
			}
		}
		if p.newest.CompareAndSwap(old, next) {
			return
		}
	}
}

// estimate is what the sample says about a later moment, and how much too low that can be.
func (c *clockSample) estimate(moment time.Time) (at hlc.Timestamp, short time.Duration, ok bool) {
	passed := moment.Sub(c.since)
	apart := moment.Round(0).Sub(c.since.Round(0)) - passed
	if apart < -clockJump || apart > clockJump {
		return hlc.Timestamp{}, 0, false
	}
	passed = max(0, passed, passed+apart)
	return hlc.Timestamp{Wall: c.now.Wall, Logical: c.now.Logical}.Add(passed),
		time.Duration(float64(passed) * clockDrift), true
}

// ClockEstimate estimates the cluster's time without asking for it: some node's clock stands
// between earliest, but for the drift of this machine's clock, and latest + short. Neither is below
// the session. ok is false if nothing is known, as long as no answer has come quickly.
//
// What is to be read goes by the earliest: a server whose clock is behind the timestamp of a read
// brings it up to that. If that timestamp were more than another clock shows, all of them would get
// ahead of the time, and so would what is estimated by them next, again and again.
func (s *Sender) ClockEstimate() (earliest, latest hlc.Timestamp, short time.Duration, ok bool) {
	session := s.Session()
	sample := s.clock.newest.Load()
	if sample == nil {
		return session, session, 0, false
	}
	now := time.Now()
	latest, short, ok = sample.estimate(now)
	earliest, _ = sample.earliest(now)
	return hlc.Max(earliest, session), hlc.Max(latest, session), short, ok
}

// Earliest estimates the cluster's time from below: some node's clock stands at it or above, but
// for the drift of this machine's clock. It is wrong by the way of an answer only, and not by how
// long it took to connect, so that those of several clients can be compared. Unlike ClockEstimate
// it may lie below the session. ok is false if nothing is known.
func (s *Sender) Earliest() (at hlc.Timestamp, ok bool) {
	sample := s.clock.newest.Load()
	if sample == nil {
		return hlc.Timestamp{}, false
	}
	return sample.earliest(time.Now())
}

func (c *clockSample) earliest(moment time.Time) (at hlc.Timestamp, ok bool) {
	at, _, ok = c.estimate(moment)
	at.Wall -= int64(c.received.Sub(c.since))
	return at, ok
}
