package delays

import (
	"testing"
	"time"
)

const millisecond = int64(time.Millisecond)

func TestTicks(t *testing.T) {
	var ticks Ticks
	now := int64(1)
	second := func(late time.Duration) {
		for range 10 {
			now += 100 * millisecond
			ticks.Observe(now, time.Microsecond)
		}
		ticks.Observe(now, late)
	}
	for range 8 {
		second(time.Millisecond)
	}
	if got := ticks.Wait(); got != 0 {
		t.Errorf("after eight seconds: %v", got)
	}
	for range 4 {
		second(time.Millisecond)
	}
	if got := ticks.Wait(); got != time.Millisecond {
		t.Errorf("in calm: %v", got)
	}
	second(80 * time.Millisecond)
	if got := ticks.Wait(); got != time.Millisecond {
		t.Errorf("after one late tick: %v", got)
	}
	for range 5 {
		second(80 * time.Millisecond)
	}
	if got := ticks.Wait(); got != 80*time.Millisecond {
		t.Errorf("without a processor: %v", got)
	}
}

// pair are two hosts that ping each other, with a network between them that takes some time.
type pair struct {
	a, b           RoundTrip
	now            int64
	toB, toA       time.Duration
	numberA, other uint64
}

// exchange has A ping, B ping some time later, and both hear.
func (p *pair) exchange(pause time.Duration) {
	p.numberA++
	fromA := p.a.Sent(p.numberA, p.now)
	p.now += int64(p.toB)
	p.b.Heard(7, p.numberA, fromA, p.now)
	p.now += int64(pause)
	p.other++
	fromB := p.b.Sent(p.other, p.now)
	p.now += int64(p.toA)
	p.a.Heard(8, p.other, fromB, p.now)
	p.now += int64(pause)
}

func TestRoundTrip(t *testing.T) {
	p := pair{now: 1, toB: 2 * time.Millisecond, toA: 3 * time.Millisecond}
	for range samplesNeeded - 1 {
		p.exchange(100 * time.Millisecond)
	}
	if got := p.a.Median(p.now); got != 0 {
		t.Errorf("of four pings: %v", got)
	}
	p.exchange(100 * time.Millisecond)
	if got := p.a.Median(p.now); got != 5*time.Millisecond {
		t.Errorf("A measures %v", got)
	}
	p.exchange(100 * time.Millisecond)
	if got := p.b.Median(p.now); got != 5*time.Millisecond {
		t.Errorf("B measures %v", got)
	}
	p.toA = 60 * time.Millisecond
	for range samplesKept {
		p.exchange(100 * time.Millisecond)
	}
	if got := p.a.Median(p.now); got != 62*time.Millisecond {
		t.Errorf("when the network is slow, A measures %v", got)
	}
	if got := p.a.Median(p.now + int64(2*sampleFresh)); got != 0 {
		t.Errorf("after a long silence A measures %v", got)
	}
}

// What a peer may send by mistake or on purpose is no measurement.
func TestRoundTripOfNonsense(t *testing.T) {
	for name, echo := range map[string]Echo{
		"unknown":  {Number: 99},
		"held":     {Number: 1, Held: time.Hour},
		"negative": {Number: 1, Held: -time.Hour},
	} {
		var r RoundTrip
		r.Sent(1, 1000)
		for i := range uint64(10) {
			r.Heard(7, i+1, echo, 2000)
		}
		if len(r.samples) > 0 {
			t.Errorf("%s: %v", name, r.samples)
		}
	}
	// The same echo in many pings is one sample, and a ping that comes twice adds nothing.
	var r RoundTrip
	r.Sent(1, 1000)
	for i := range uint64(10) {
		r.Heard(7, i+1, Echo{Number: 1}, 2000)
		r.Heard(7, i+1, Echo{Number: 1}, 2000)
	}
	if len(r.samples) != 1 {
		t.Errorf("one ping gave %d samples", len(r.samples))
	}
	// A peer that has started again counts from one.
	r.Sent(2, 3000)
	r.Heard(9, 1, Echo{Number: 2, Held: time.Microsecond}, 5000)
	if len(r.samples) != 2 || r.samples[1].took != time.Microsecond {
		t.Errorf("after a restart of the peer: %v", r.samples)
	}
}
