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

// coreStallLooks is how many checks in a row must find the same write of the member's log
// unfinished: a process that was stopped finds one such write when it continues.
const coreStallLooks = 2

// coreSlowKeepsFor is a number of election timeouts. A member with a slow disk that became leader
// keeps the leadership for that time. It becomes leader only if no other member can lead, or by a
// change of the members whose next step needs it as leader.
const coreSlowKeepsFor = 5

// Watch makes a member of the core lead neither of its groups while its disk is slow compared with
// those of other members, or hangs. Its heartbeats, which need no disk, would keep it in office,
// and the whole core would be as slow as that disk. No member is preferred as leader: when the disk
// is healthy again, the member leads again only when a later election makes it the leader.
type Watch struct {
	host *host.Host
	// beside reports whether the disk of this server's data node is slow. Usually that is the same
	// disk, and it is written more often.
	beside func() bool
	// These fields belong to the goroutine that checks. stalled counts the checks that found the log
	// hanging. yielding maps a group whose leadership was transferred to the time until which the
	// group is left alone. led maps a group that is led here to its term and the time since. Both
	// times are of the caller's clock.
	stalled  int
	yielding map[keys.PartitionID]time.Time
	led      map[keys.PartitionID]ledTerm
	// standsStill is set if the last check found the log hanging. Any goroutine may read it.
	standsStill atomic.Bool

	running sync.WaitGroup
	end     context.CancelFunc
}

// ledTerm is the term of a leadership, and the time at which it was first seen.
type ledTerm struct {
	term  uint64
	since time.Time
}

// Start begins to check the disk, until ctx ends or Close is called.
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

// Close ends the checks, if they were started.
func (d *Watch) Close() {
	if d.end != nil {
		d.end()
		d.running.Wait()
	}
}

// State returns the state of the core log's disk. Start must have been called.
func (d *Watch) State() membership.DiskState {
	slow, sync := d.host.DiskSlow()
	return membership.DiskState{Slow: slow, Stalled: d.standsStill.Load(), Sync: sync}
}

// look does one check. It is called at every tick.
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
			lag = host.NearlyAll // a member that lags may catch up before the transfer
		}
		d.yielding[g.ID()] = now.Add(h.ElectionTimeout() + h.Tick())
		g.Successor(d.rank(stalled), lag, func(best keys.ReplicaID, term uint64) {
			if best != 0 {
				g.TransferLeader(term, best)
			}
		})
	})
}

// rank returns how well a member would lead instead of this one. A member with a slow disk is
// better than one whose disk hangs.
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
