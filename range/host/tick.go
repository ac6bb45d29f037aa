package host

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// truncateEvery is how many ticks pass between two looks for logs to truncate.
const truncateEvery = 20

// tickLoop ticks the shards, pings the peers, and notices which of them are gone.
func (h *Host) tickLoop() {
	defer h.tasks.Done()
	timer := time.NewTimer(h.config.Tick)
	defer timer.Stop()
	last := h.now()
	for n := 0; ; n++ {
		select {
		case <-h.ctx.Done():
			return
		case <-timer.C:
		}
		now := h.now()
		if gap := time.Duration(now - last); gap >= h.config.electionTimeout() {
			h.metrics.pauses.Inc()
			h.config.Logger.Warn("this process was paused; its leases have run out", "for",
				gap.Round(time.Millisecond))
		}
		last = now
		if h.config.BelievesClock {
			h.clocks.Believe()
		}
		silent, all := h.peers.NewlySilent(now, int64(h.config.electionTimeout()))
		h.noteGone(h.peers.NewlyGone(now, h.config.Tick))
		h.slowness.look(h, now)
		round := h.beginRound()
		// The workers tick: a group that reads the disk must hold up neither pings nor other groups.
		for _, s := range h.shards {
			s.signalTick()
		}
		h.pingPeers(all, round, now)
		h.noteSilent(silent)
		h.wakes.wake()
		if n%truncateEvery == truncateEvery-1 {
			h.truncateLogs()
			h.wakeUnclosed()
		}
		// Counted from now and not from when the tick was due: two ticks are never closer than the
		// interval.
		timer.Reset(h.config.Tick)
	}
}

// noteSilent is told of hosts that have newly been silent.
func (h *Host) noteSilent(hosts []uint64) {
	for _, host := range hosts {
		h.config.Logger.Debug("host is silent", "host", host, "for", h.config.electionTimeout())
		h.wakes.followersOf(host, false)
		h.wakes.leadersAlone(host)
	}
}

// retainLogBytes is how much of its log each group may keep for followers that lag.
func (h *Host) retainLogBytes() int64 {
	h.mu.RLock()
	groups := int64(len(h.mu.groups))
	h.mu.RUnlock()
	return max(minRetainLogBytes,
		min(h.config.RetainLogBytes, h.config.TotalLogBytes/max(1, groups)))
}

// minRetainLogBytes is kept however many groups there are, and by a leader without disk space.
const minRetainLogBytes = 16 << 10

// truncateLogs has the logs truncated that hold more than they should.
func (h *Host) truncateLogs() {
	retain, least := h.retainLogBytes(), h.retainLogBytes()
	if h.disk.none.Load() {
		least = minRetainLogBytes
	}
	h.Groups(func(g *Group) {
		first, last, bytes := g.storage.Extent()
		if bytes < least+least/2 || last < first {
			return
		}
		if g.inbox.isStopped() {
			return
		}
		g.do(func(g *Group) {
			// What follows a snapshot on its way stays, but no more than the group's share of that.
			_, _, held := g.storage.Extent()
			full := held > h.config.TotalLogBytes/snapshotLogShare
			told, keep := g.followers.needed(g.core.Applied(), g.core, h.now(), full), retain
			if all, leading := caughtUp(g.core); least < retain && leading {
				// What a follower lacks stays: it may have no room for a snapshot.
				told, keep = min(told, all), least
			}
			if bytes < keep+keep/2 {
				return
			}
			g.work.Add(1)
			g.applier.queue.Add(task{run: func() { g.truncate(told, keep) }})
		})
	})
}

// caughtUp is up to where all followers have the log, if this replica leads.
func caughtUp(core *group.Group) (index uint64, leading bool) {
	if !core.Leadership().IsLeader {
		return 0, false
	}
	index = core.Applied()
	core.Followers(func(_ keys.ReplicaID, p group.Progress) { index = min(index, p.Match) })
	return index, true
}

// truncate runs on an apply worker, so that no snapshot is installed at the same time. It does
// nothing while the append of one that was installed is on its way: that deletes the entries of
// which a truncation reads one, and the order of the two on disk would be open. told is what Raft
// knows to be applied, since before a campaign it reads what is not; and no more than what
// followers need. retain is how many bytes stay beside.
func (g *Group) truncate(told uint64, retain int64) {
	if g.replacing.Load() != 0 {
		return
	}
	durable, err := g.machine.DurableApplied()
	if err != nil {
		g.failFrom(err)
		return
	}
	first, last, bytes := g.storage.Extent()
	if last < first || bytes <= 0 {
		return
	}
	// Of what is durable in the state, as much stays as the followers may want.
	average := max(1, bytes/int64(last-first+1))
	keep := uint64(retain / average)
	if last < keep {
		return
	}
	if to := min(durable, told, last-keep); to >= first {
		if err := g.storage.Truncate(to); err != nil {
			g.failFrom(err)
		}
		g.host.truncations.Add(1)
	}
}

// Truncations is how often logs were truncated since the host was made.
func (h *Host) Truncations() uint64 { return h.truncations.Load() }
