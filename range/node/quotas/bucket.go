package quotas

import (
	"math"
	"time"
)

const (
	// burst is the time for which a bucket fills until it is full.
	burst = time.Second
	// mostWait is the longest time after which a refused request is to come again. The node's part of
	// a quota may have changed by then.
	mostWait = 2 * time.Second
	// leastWait is the shortest.
	leastWait = time.Millisecond
	// demandTime is the time over which demand is averaged: what was asked for so long ago counts e
	// times less.
	demandTime = 2 * time.Second
)

// bucket has the tokens of one quota on one node. It fills at a rate, and may be in debt. The
// package golang.org/x/time/rate has no buckets in debt, and none of which a request takes from two
// at once or from neither.
type bucket struct {
	// rate is in tokens a second; it is above 0.
	rate   float64
	tokens float64
	// filled is when tokens were last added.
	filled time.Time
	// promised is the latest time at which a refused request was told to come again.
	promised time.Time
}

// size is how many tokens the bucket holds: at least one, so that a request gets in at all.
func (b *bucket) size() float64 { return max(b.rate*burst.Seconds(), 1) }

// setRate changes the rate. A bucket without a rate was not used before, and is full.
func (b *bucket) setRate(rate float64, now time.Time) {
	if rate == b.rate {
		return
	}
	if b.rate == 0 {
		b.rate, b.filled = rate, now
		b.tokens = b.size()
		return
	}
	b.fill(now)
	b.rate, b.promised = rate, time.Time{}
	b.tokens = min(b.tokens, b.size())
}

// fill adds the tokens of the time that has passed.
func (b *bucket) fill(now time.Time) {
	if d := now.Sub(b.filled); d > 0 {
		b.tokens = min(b.tokens+b.rate*d.Seconds(), b.size())
		b.filled = now
	}
}

// has reports whether a request may take tokens. It is called after fill.
func (b *bucket) has() bool { return b.tokens >= 1-1e-9 }

// refuse returns after which time a request that would have taken so many tokens is to come again.
// It is called after fill.
func (b *bucket) refuse(cost float64, now time.Time) time.Duration {
	room := now.Add(seconds((1 - b.tokens) / b.rate))
	next := b.promised.Add(seconds(cost / b.rate))
	if next.Before(room) {
		next = room
	}
	if last := now.Add(mostWait); next.After(last) {
		next = last
	}
	b.promised = next
	return max(next.Sub(now), leastWait)
}

// seconds is a number of seconds as a duration of at most mostWait.
func seconds(s float64) time.Duration {
	return time.Duration(min(max(s, 0), mostWait.Seconds()) * float64(time.Second))
}

// meter is an amount in a second, averaged over demandTime.
type meter struct {
	rate float64
	at   time.Time
}

func (m *meter) add(n float64, now time.Time) {
	m.rate = m.now(now) + n/demandTime.Seconds()
	if now.After(m.at) {
		m.at = now
	}
}

// now is the average now.
func (m *meter) now(now time.Time) float64 {
	d := now.Sub(m.at)
	if d <= 0 || m.rate == 0 {
		return m.rate
	}
	return m.rate * math.Exp(-d.Seconds()/demandTime.Seconds())
}
