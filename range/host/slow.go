package host

import (
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/host/slowdisk"
)

// judgePeriod is how often a host judges its disk.
const judgePeriod = time.Second

// slowness is whether the disk with the log is slow beside those of the peers (package slowdisk).
type slowness struct {
	// Of the ticker's goroutine.
	meter slowdisk.Meter
	judge slowdisk.Judge
	next  int64

	// sync is how long a sync of the log takes, in nanoseconds; 0: it is not known.
	sync atomic.Int64
	slow atomic.Bool
}

// look is called with every tick.
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

// DiskSlow says whether the log takes many times longer to sync than those of the peers, as judged
// over some seconds, and how long a sync takes; 0: it is not known.
func (s *slowness) DiskSlow() (slow bool, sync time.Duration) {
	return s.slow.Load(), time.Duration(s.sync.Load())
}
