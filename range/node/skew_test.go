package node

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// pings plays ten pings a second from each peer for some seconds, with offsets and delays, and checks once a second.
func pings(s *skew, now *int64, seconds int, offset, delay map[uint64]time.Duration) {
	for range seconds {
		for range 10 {
			*now += int64(100 * time.Millisecond)
			for id, o := range offset {
				s.heard(id, &peerpb.HostPing{Physical: uint64(*now + int64(o) - int64(delay[id]))}, func() int64 { return *now }, *now)
			}
		}
		s.check(*now)
	}
}

func TestSkewIsToldFromDelay(t *testing.T) {
	for _, test := range []struct {
		name   string
		offset map[uint64]time.Duration
		delay  map[uint64]time.Duration
		bad    bool
	}{
		{"all agree", map[uint64]time.Duration{2: time.Millisecond, 3: -time.Millisecond}, nil, false},
		{"one of two peers is off", map[uint64]time.Duration{2: time.Second, 3: 0}, nil, false},
		{"both are ahead", map[uint64]time.Duration{2: time.Second, 3: time.Second}, nil, true},
		{"both are behind", map[uint64]time.Duration{2: -time.Second, 3: -time.Second}, nil, true},
		{"two of four", map[uint64]time.Duration{2: time.Second, 3: time.Second, 4: 0, 5: 0}, nil, false},
		{"three of four", map[uint64]time.Duration{2: time.Second, 3: time.Second, 4: -time.Second, 5: 0}, nil, true},
		{"within the limit", map[uint64]time.Duration{2: 200 * time.Millisecond, 3: -200 * time.Millisecond}, nil, false},
		{"a little delay", map[uint64]time.Duration{2: 0, 3: 0}, map[uint64]time.Duration{2: 200 * time.Millisecond, 3: 200 * time.Millisecond}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var s skew
			s.init(250 * time.Millisecond)
			now := int64(time.Hour)
			pings(&s, &now, 10, test.offset, test.delay)
			if s.unhealthy.Load() != test.bad {
				t.Errorf("unhealthy %v, want %v; offsets %v", s.unhealthy.Load(), test.bad, s.offsets(now))
			}
		})
	}
}

// One prompt ping in two seconds is enough to tell a slow network from a slow clock.
func TestSkewIgnoresDelayedPings(t *testing.T) {
	var s skew
	s.init(250 * time.Millisecond)
	now := int64(time.Hour)
	for i := range 200 {
		now += int64(100 * time.Millisecond)
		delay := 800 * time.Millisecond
		if i%15 == 0 {
			delay = 0
		}
		for _, id := range []uint64{2, 3} {
			s.heard(id, &peerpb.HostPing{Physical: uint64(now - int64(delay))}, func() int64 { return now }, now)
		}
		if i%10 == 9 {
			s.check(now)
		}
		if s.unhealthy.Load() {
			t.Fatalf("unhealthy at ping %d; offsets %v", i, s.offsets(now))
		}
	}
}

// A process that stood still finds old pings in its buffers, which are no measure of anything.
func TestSkewAfterAPause(t *testing.T) {
	var s skew
	s.init(250 * time.Millisecond)
	now := int64(time.Hour)
	good := map[uint64]time.Duration{2: 0, 3: 0}
	pings(&s, &now, 10, good, nil)
	sent := now
	now += int64(15 * time.Second)
	for i := range 150 {
		for _, id := range []uint64{2, 3} {
			s.heard(id, &peerpb.HostPing{Physical: uint64(sent + int64(i)*int64(100*time.Millisecond))}, func() int64 { return now }, now)
		}
	}
	s.check(now)
	pings(&s, &now, 10, good, nil)
	if s.unhealthy.Load() {
		t.Error("unhealthy after a pause")
	}
}

// Silence proves nothing, in either direction.
func TestSkewInSilence(t *testing.T) {
	var s skew
	s.init(250 * time.Millisecond)
	now := int64(time.Hour)
	pings(&s, &now, 10, map[uint64]time.Duration{2: time.Minute, 3: time.Minute}, nil)
	pings(&s, &now, 60, nil, nil)
	if !s.unhealthy.Load() {
		t.Error("a wrong clock became right by silence")
	}
	if n := len(s.mu.peers); n != 0 {
		t.Errorf("%d silent peers are remembered", n)
	}
	pings(&s, &now, 10, map[uint64]time.Duration{2: 0, 3: 0}, nil)
	if s.unhealthy.Load() {
		t.Error("still unhealthy")
	}
}
