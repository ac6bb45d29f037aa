package clock

import (
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
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

// maxOffsetMicros bounds what is believed of a server.
const maxOffsetMicros = uint64(24 * time.Hour / time.Microsecond)

// Clock is what a sender knows of the cluster's time. The zero Clock knows nothing. Its methods may
// be called from any goroutine, and none of them takes a lock.
type Clock struct {
	session, seen session
	// newest is the clock of some node at a moment. What it points to does not change.
	newest atomic.Pointer[sample]
	// sampled is when the last sample was taken, by the watchdog's count of ticks.
	sampled atomic.Uint32
	// maxOffset is in nanoseconds.
	maxOffset atomic.Int64
}

// Session is the highest timestamp seen in any answer.
func (c *Clock) Session() hlc.Timestamp { return c.session.load() }

// SessionOfRequest is Session as requests carry it. It is not to be changed.
func (c *Clock) SessionOfRequest() *kvpb.Timestamp { return c.session.highest.Load() }

// RaiseSession makes the session at least ts.
func (c *Clock) RaiseSession(ts hlc.Timestamp) { c.session.observe(wire.ToTimestamp(ts)) }

// Hear raises the session to what the clock of a node showed, which must not change any more.
func (c *Clock) Hear(now *kvpb.Timestamp) { c.session.observe(now) }

// Answered takes in what an answer shows of versions: it raises the session, and what was seen.
func (c *Clock) Answered(r *kvpb.Response) {
	c.session.observeResult(r)
	c.seen.observeSeen(r)
}

// Read notes that something was read at a timestamp, which must not change any more; nil: nothing
// was.
func (c *Clock) Read(at *kvpb.Timestamp) { c.seen.observe(at) }

// Seen is a timestamp at or above all that was written and read through this sender: its session,
// but for the clocks that the session has heard of.
func (c *Clock) Seen() hlc.Timestamp { return c.seen.load() }

// Saw notes that something of a timestamp was seen.
func (c *Clock) Saw(ts hlc.Timestamp) {
	c.RaiseSession(ts)
	c.seen.observe(wire.ToTimestamp(ts))
}

// LearnMaxOffset takes in what a server says of the cluster's clocks. If servers disagree, the
// widest holds.
func (c *Clock) LearnMaxOffset(micros uint64) {
	said := int64(time.Duration(min(micros, maxOffsetMicros)) * time.Microsecond)
	for {
		known := c.maxOffset.Load()
		if said <= known || c.maxOffset.CompareAndSwap(known, said) {
			return
		}
	}
}

// MaxOffset is how far the clocks of the cluster may be apart, as its servers have said; zero if
// none has. It does not shrink.
func (c *Clock) MaxOffset() time.Duration { return time.Duration(c.maxOffset.Load()) }

// sample says that a node's clock stood at now, at or after the moment since, and at or before
// received. So that clock stands, at any later moment, at or below now + (the time passed since
// then): the round trip is counted in.
type sample struct {
	now      hlc.Timestamp
	since    time.Time
	received time.Time
}

// SampleDue says whether the request that is about to be sent is to sample the time, and when that
// is. tick is the watchdog's count.
func (c *Clock) SampleDue(tick uint32) (time.Time, bool) {
	if tick-c.sampled.Load() < sampleTicks && c.newest.Load() != nil {
		return time.Time{}, false
	}
	c.sampled.Store(tick)
	return time.Now(), true
}

// Sample takes in what a node's clock stood at, in the answer to a request.
func (c *Clock) Sample(now hlc.Timestamp, sent, received time.Time) {
	trip, bound := received.Sub(sent), c.MaxOffset()
	if now.IsZero() || trip > sampleTrip {
		return
	}
	next := &sample{now: now, since: sent, received: received}
	for {
		old := c.newest.Load()
		if old != nil {
			at, _, ok := old.estimate(received)
			lower := at.Less(now.Add(trip))
			wrong := bound > 0 && now.Wall-at.Wall > clockWrong*int64(bound)
			if ok && received.Sub(old.since) < sampleAge && lower && !wrong {
				return
			}
		}
		if c.newest.CompareAndSwap(old, next) {
			return
		}
	}
}

// estimate is what the sample says about a later moment, and how much too low that can be.
func (x *sample) estimate(moment time.Time) (at hlc.Timestamp, short time.Duration, ok bool) {
	passed := moment.Sub(x.since)
	apart := moment.Round(0).Sub(x.since.Round(0)) - passed
	if apart < -clockJump || apart > clockJump {
		return hlc.Timestamp{}, 0, false
	}
	passed = max(0, passed, passed+apart)
	return hlc.Timestamp{Wall: x.now.Wall, Logical: x.now.Logical}.Add(passed),
		time.Duration(float64(passed) * clockDrift), true
}

// Estimate estimates the cluster's time without asking for it: some node's clock stands
// between earliest, but for the drift of this machine's clock, and latest + short. Neither is below
// the session. ok is false if nothing is known, as long as no answer has come quickly.
//
// What is to be read goes by the earliest: a server whose clock is behind the timestamp of a read
// brings it up to that. If that timestamp were more than another clock shows, all of them would get
// ahead of the time, and so would what is estimated by them next, again and again.
func (c *Clock) Estimate() (earliest, latest hlc.Timestamp, short time.Duration, ok bool) {
	session := c.Session()
	sample := c.newest.Load()
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
// long it took to connect, so that those of several clients can be compared. Unlike Estimate
// it may lie below the session. ok is false if nothing is known.
func (c *Clock) Earliest() (at hlc.Timestamp, ok bool) {
	sample := c.newest.Load()
	if sample == nil {
		return hlc.Timestamp{}, false
	}
	return sample.earliest(time.Now())
}

func (x *sample) earliest(moment time.Time) (at hlc.Timestamp, ok bool) {
	at, _, ok = x.estimate(moment)
	at.Wall -= int64(x.received.Sub(x.since))
	return at, ok
}
