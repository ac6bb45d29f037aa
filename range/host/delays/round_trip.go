package delays

import (
	"slices"
	"time"
)

const (
	// pingsKept is the number of the last pings whose echo is accepted.
	pingsKept = 16
	// samplesKept is the number of round trips that the median is taken of. With fewer than
	// samplesNeeded there is no median.
	samplesKept, samplesNeeded = 15, 5
	// sampleFresh is for how long a round trip counts.
	sampleFresh = time.Minute
	// maxRoundTrip bounds what counts as a round trip.
	maxRoundTrip = time.Minute
)

// Echo says which ping of a host its peer has heard last, and for how long the peer has had it.
// Number 0: none.
type Echo struct {
	Number uint64
	Held   time.Duration
}

// RoundTrip measures the round trips to one peer. Each ping carries a number, and the Echo of the
// peer's last ping; the time from a ping to the ping with its echo, less the time that the peer
// held the echo, is a round trip. The zero value is ready. Times are nanoseconds of the host's own
// monotonic clock.
type RoundTrip struct {
	// sent holds the last pings as a ring; next is the place of the next one.
	sent [pingsKept]sentPing
	next int
	// heard is the number of the peer's last ping, and heardAt the time at which it came.
	// incarnation names the process of the peer that sent it.
	heard, incarnation uint64
	heardAt            int64
	// echoed is the number of the last ping whose echo was used, so that each ping gives one
	// sample.
	echoed  uint64
	samples []sample
}

type sentPing struct {
	number uint64
	at     int64
}

type sample struct {
	at   int64
	took time.Duration
}

// Sent notes that a ping with a number leaves now, and returns the echo that it carries.
func (r *RoundTrip) Sent(number uint64, now int64) Echo {
	r.sent[r.next] = sentPing{number, now}
	r.next = (r.next + 1) % pingsKept
	if r.heard == 0 {
		return Echo{}
	}
	return Echo{Number: r.heard, Held: max(0, time.Duration(now-r.heardAt))}
}

// Heard notes a ping of the peer: the process that sent it, its number, and the echo that it
// carries. A ping that comes late or twice, and an echo of an unknown ping, add nothing.
func (r *RoundTrip) Heard(incarnation, number uint64, echo Echo, now int64) {
	if incarnation != r.incarnation {
		r.incarnation, r.heard = incarnation, 0
	}
	if number <= r.heard {
		return
	}
	r.heard, r.heardAt = number, now
	i := slices.IndexFunc(r.sent[:], func(p sentPing) bool { return p.number == echo.Number })
	if echo.Number == 0 || i < 0 || echo.Number == r.echoed {
		return
	}
	took := time.Duration(now-r.sent[i].at) - echo.Held
	if echo.Held < 0 || took < 0 || took > maxRoundTrip {
		return
	}
	r.echoed = echo.Number
	if len(r.samples) == samplesKept {
		r.samples = slices.Delete(r.samples, 0, 1)
	}
	r.samples = append(r.samples, sample{now, took})
}

// Median returns how long a round trip takes at present, at least one microsecond; 0: too few are
// known.
func (r *RoundTrip) Median(now int64) time.Duration {
	took := make([]time.Duration, 0, samplesKept)
	for _, s := range r.samples {
		if now-s.at <= int64(sampleFresh) {
			took = append(took, s.took)
		}
	}
	if len(took) < samplesNeeded {
		return 0
	}
	slices.Sort(took)
	return max(took[len(took)/2], time.Microsecond)
}
