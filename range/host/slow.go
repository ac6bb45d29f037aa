package host

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/host/delays"
	"github.com/tidemarkdb/tidemark/range/host/peers"
	"github.com/tidemarkdb/tidemark/range/host/slowdisk"
)

// judgePeriod is how often a host judges its disk.
const judgePeriod = time.Second

// slowness measures whether the disk with the log is slow compared with those of the peers (package
// slowdisk), and how long the process waits for a processor (package delays).
type slowness struct {
	// Only the ticker's goroutine may touch meter.
	meter slowdisk.Meter
	judge slowdisk.Judge
	next  int64
	ticks delays.Ticks

	// processorWait is how long the process waits for a processor, in nanoseconds; 0: unknown.
	processorWait atomic.Int64

	// sync is how long a sync of the log takes, in nanoseconds; 0: unknown.
	sync atomic.Int64
	slow atomic.Bool
}

// ticked is called at every tick with the time at which the tick was due.
func (s *slowness) ticked(due, now int64) {
	if s.ticks.Observe(now, time.Duration(max(0, now-due))) {
		s.processorWait.Store(int64(s.ticks.Wait()))
	}
}

// ProcessorWait returns how long the process waits for a processor at present; 0: unknown.
func (s *slowness) ProcessorWait() time.Duration { return time.Duration(s.processorWait.Load()) }

// look is called at every tick.
func (s *slowness) look(h *Host, now int64) {
	if now < s.next {
		return
	}
	s.next = now + int64(judgePeriod)
	writes, nanos := h.log.Synced()
	s.meter.Observe(now, writes, nanos, h.log.Writing())
	own := s.meter.Sync(now)
	s.sync.Store(int64(own))
	if peers := h.peers.Syncs(); s.judge.Look(own, peers) {
		s.slow.Store(s.judge.Slow())
		if s.judge.Slow() {
			h.config.Logger.Warn("the disk is slow: the log takes many times longer to sync than at peers; "+
				"leaderships go to others", "sync", own.Round(time.Microsecond), "peers", peers)
		} else {
			h.config.Logger.Info("the disk is as fast as those of others again", "sync",
				own.Round(time.Microsecond), "peers", peers)
		}
	}
}

// DiskSlow reports whether syncs of the log take many times longer than those of the peers, as
// judged over some seconds, and how long a sync takes; 0: unknown.
func (s *slowness) DiskSlow() (slow bool, sync time.Duration) {
	return s.slow.Load(), time.Duration(s.sync.Load())
}

// RoundTrips lists the round trips to the peers, where known.
func (h *Host) RoundTrips() []peers.RoundTrip { return h.peers.RoundTrips(h.now()) }

// usualRoundTrip returns the median round trip to the peers; 0: unknown.
func (h *Host) usualRoundTrip() time.Duration {
	trips := h.RoundTrips()
	if len(trips) == 0 {
		return 0
	}
	slices.SortFunc(trips, func(a, b peers.RoundTrip) int { return cmp.Compare(a.Took, b.Took) })
	return trips[(len(trips)-1)/2].Took
}
