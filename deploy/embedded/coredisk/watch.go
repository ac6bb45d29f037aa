package coredisk

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/membership"
	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// coreStallLooks is how many looks in a row must find the log of a member standing still: a process
// that was stopped finds one such write when it goes on.
const coreStallLooks = 2

// coreSlowKeepsFor is for how many election timeouts a member keeps a leadership that it has got
// although its disk is slow. It gets one only where no other member can lead, or by a change of the
// members, the next step of which must find it there.
const coreSlowKeepsFor = 5

// Watch has a member of the core lead nothing, in neither of its groups, while its disk is slow
// beside those of other members or stands still. Its heartbeats, which need no disk, would keep it
// in office, and all that the core does would be as slow as that disk. No member is preferred as
// leader: when the disk is well again the member leads when the next election has it so.
type Watch struct {
	host *host.Host
	// beside says whether the disk of the data node on this server, which mostly is the same, is
	// slow: that one is written more often.
	beside func() bool
	// The fields belong to the goroutine that looks. stalled counts the looks that found the log
	// standing still. yielding holds until when a group that was handed over is left alone, and led
	// in which term a group is led here, and since when; both by the caller's clock.
	stalled  int
	yielding map[keys.PartitionID]time.Time
	led      map[keys.PartitionID]ledTerm
	// standsStill is whether the last look found the log standing still. Every goroutine may
	// read the field.
	standsStill atomic.Bool

	running sync.WaitGroup
	end     context.CancelFunc
}

// ledTerm is the term of a leadership, and when it was seen first.
type ledTerm struct {
	term  uint64
	since time.Time
}

// Start begins to look at the disk. It ends with ctx, or by close.
func (d *Watch) Start(ctx context.Context, h *host.Host, beside func() bool) {
	d.host, d.beside, d.yielding = h, beside, make(map[keys.PartitionID]time.Time)
	d.led = make(map[keys.PartitionID]ledTerm)
	ctx, d.end = context.WithCancel(ctx)
	d.running.Go(func() {
		ticks := time.NewTicker(h.Tick())
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
				d.look()
			}
		}
	})
}

// Close ends the looking, if that was started.
func (d *Watch) Close() {
	if d.end != nil {
		d.end()
		d.running.Wait()
	}
}

// State says how the disk of the core's log is. start must have been called.
func (d *Watch) State() membership.DiskState {
	slow, sync := d.host.DiskSlow()
	return membership.DiskState{Slow: slow, Stalled: d.standsStill.Load(), Sync: sync}
}

// look is called with every tick.
func (d *Watch) look() {
	h := d.host
	slow, _ := h.DiskSlow()
	slow = slow || d.beside()
	if d.stalled++; h.Log().Writing() < h.ElectionTimeout() {
		d.stalled = 0
	}
	stalled := d.stalled >= coreStallLooks
	d.standsStill.Store(stalled)
	h.SetLeaderAverse(slow || stalled, slow && !stalled)
	now := time.Now()
	h.Groups(func(g *host.Group) {
		leader, term := g.Leader()
		if leader != g.Self() {
			return
		}
		if d.led[g.ID()].term != term {
			d.led[g.ID()] = ledTerm{term, now}
		}
		lag := uint64(host.AnyLag)
		switch {
		case !slow && !stalled, now.Before(d.yielding[g.ID()]):
			return
		case !stalled && now.Sub(d.led[g.ID()].since) < coreSlowKeepsFor*h.ElectionTimeout():
			return
		case !stalled:
			lag = host.NearlyAll // it can wait for a member that lags
		}
		d.yielding[g.ID()] = now.Add(h.ElectionTimeout() + h.Tick())
		g.Successor(d.rank(stalled), lag, func(best keys.ReplicaID, term uint64) {
			if best != 0 {
				g.TransferLeader(term, best)
			}
		})
	})
}

// rank says how well a host would lead instead of this one. One whose disk is slow is better than
// one whose disk stands still.
func (d *Watch) rank(stalled bool) func(member uint64) int {
	return func(member uint64) int {
		switch {
		case !d.host.Peers().LeaderAverse(member):
			return 2
		case stalled && d.host.Peers().Recovering(member):
			return 1
		}
		return 0
	}
}
