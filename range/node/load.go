package node

import (
	"math"
	"sync/atomic"
	"time"
)

// loadWindow is over how long a load is averaged: what is older counts for less than a third.
const loadWindow = time.Minute

// loadMeter measures what a replica costs: the time that goroutines spend evaluating and serving
// its requests and applying its entries. It is wall time, so it counts a wait for a disk, and on a
// machine that has too little processor time for its load it says more than was used; both make a
// replica look as heavy as it is to the node.
type loadMeter struct {
	// led is the time spent on requests, which only a leader has, and applying that on entries, which
	// every replica has; in nanoseconds, since the replica was opened.
	led, applying atomic.Int64

	// What follows belongs to the goroutine that samples. The averages are in nanoseconds of work
	// each second.
	sampled                bool
	at                     time.Time
	ledBefore, applyBefore int64
	ledRate, applyRate     float64
	// reported and reportedFor are the load, and for how long it was measured, as reported last.
	reported, reportedFor float64
	// leadsSince is since when it leads without a break; zero: it does not.
	leadsSince time.Time

	// What the last sample found, for reports.
	leaderMicro, followerMicro atomic.Uint64
	measuredSeconds            atomic.Uint32
}

// serving adds what requests have cost since began.
func (m *loadMeter) serving(began time.Time) { m.led.Add(int64(time.Since(began))) }

// sample averages what was added since the last one, and says whether it differs from what was
// reported by enough to be reported: by more than a tenth, and by a hundredth of a processor.
func (m *loadMeter) sample(now time.Time, leading bool) (news bool) {
	led, applying := m.led.Load(), m.applying.Load()
	if !leading {
		m.leadsSince = time.Time{}
	} else if m.leadsSince.IsZero() {
		m.leadsSince, m.sampled = now, false
	}
	if !m.sampled {
		m.sampled, m.at, m.ledBefore, m.applyBefore = true, now, led, applying
		m.ledRate, m.applyRate = 0, 0
		return false
	}
	passed := now.Sub(m.at)
	if passed <= 0 {
		return false
	}
	// The first minute is averaged evenly; later samples count by their length.
	weight := 1 - math.Exp(-float64(passed)/float64(loadWindow))
	if age := now.Sub(m.leadsSince); leading && age < loadWindow {
		weight = max(weight, float64(passed)/float64(age))
	}
	m.ledRate += weight * (float64(led-m.ledBefore)/passed.Seconds() - m.ledRate)
	m.applyRate += weight * (float64(applying-m.applyBefore)/passed.Seconds() - m.applyRate)
	m.at, m.ledBefore, m.applyBefore = now, led, applying
	total := m.ledRate + m.applyRate
	m.leaderMicro.Store(uint64(total / 1000))
	m.followerMicro.Store(uint64(m.applyRate / 1000))
	measured := 0.0
	if leading {
		measured = now.Sub(m.leadsSince).Seconds()
	}
	m.measuredSeconds.Store(uint32(min(measured, math.MaxUint32)))
	const least = float64(10 * time.Millisecond)
	news = math.Abs(total-m.reported) > max(least, 0.1*m.reported) ||
		// Its leader has now measured for long enough to be believed.
		leading && m.reportedFor < loadWindow.Seconds() && measured >= loadWindow.Seconds()
	if news {
		m.reported, m.reportedFor = total, measured
	}
	return news
}

// sampleLoads samples the replicas that this node leads.
func (n *Node) sampleLoads() {
	now := time.Now()
	for _, h := range n.leaders.led() {
		if h.load.sample(now, h.leading.Load()) {
			n.reports.changed(h)
		}
	}
}
