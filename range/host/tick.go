package host

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// truncateEvery is how many ticks pass between two looks for logs to truncate.
const truncateEvery = 20

// tickLoop ticks the shards, pings the peers, and detects silent and gone peers.
func (h *Host) tickLoop() {
	defer h.tasks.Done()
	timer := time.NewTimer(h.config.Tick)
	defer timer.Stop()
	last := h.now()
	due := last + int64(h.config.Tick)
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
		h.slowness.ticked(due, now)
		if h.config.BelievesClock {
			h.clocks.Believe()
		}
		silent, all := h.peers.NewlySilent(now, int64(h.config.electionTimeout()))
		h.noteGone(h.peers.NewlyGone(now, h.config.Tick))
		h.slowness.look(h, now)
		round := h.beginRound()
		// The workers tick the groups: a group that reads the disk must delay neither pings nor
		// other groups.
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
		// The next tick counts from now, not from when this one was due: two ticks are never closer
		// than the interval.
		timer.Reset(h.config.Tick)
		due = h.now() + int64(h.config.Tick)
	}
}

// noteSilent wakes the groups that hosts which have just become silent concern.
func (h *Host) noteSilent(hosts []uint64) {
	for _, host := range hosts {
		h.config.Logger.Debug("host is silent", "host", host, "for", h.config.electionTimeout())
		h.wakes.followersOf(host, false)
		h.wakes.leadersAlone(host)
	}
}

// retainLogBytes returns how many bytes of its log each group may keep for followers that lag.
func (h *Host) retainLogBytes() int64 {
	h.mu.RLock()
	groups := int64(len(h.mu.groups))
	h.mu.RUnlock()
	return max(minRetainLogBytes,
		min(h.config.RetainLogBytes, h.config.TotalLogBytes/max(1, groups)))
}

// minRetainLogBytes is what a group keeps however many groups there are, and a leader keeps without
// disk space.
const minRetainLogBytes = 16 << 10

// truncateLogs truncates the logs that hold more than they may.
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
			// The log keeps the entries after a snapshot on its way, within the group's share.
			_, _, held := g.storage.Extent()
			full := held > h.config.TotalLogBytes/snapshotLogShare
			told, keep := g.followers.needed(g.core.Applied(), g.core, h.now(), full), retain
			if all, leading := caughtUp(g.core); least < retain && leading {
				// The log keeps the entries that a follower lacks: the follower may have no room
				// for a snapshot.
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

// caughtUp returns the index up to which all followers have the log, if this replica leads.
func caughtUp(core *group.Group) (index uint64, leading bool) {
	if !core.Leadership().IsLeader {
		return 0, false
	}
	index = core.Applied()
	core.Followers(func(_ keys.ReplicaID, p group.Progress) { index = min(index, p.Match) })
	return index, true
}

// truncate runs on an apply worker, so that no snapshot is installed at the same time. It does
// nothing while the append of an installed snapshot is on its way to the log: that append deletes
// entries of which the truncation reads one, and the order of the two on disk would be undefined.
// told is the index that Raft knows to be applied, reduced to what followers need; Raft may read
// entries above it before a campaign. retain is how many bytes to keep.
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
	// Of the entries that are durable in the state, the log keeps retain bytes for followers.
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

// Truncations counts the truncations of logs since the host was made.
func (h *Host) Truncations() uint64 { return h.truncations.Load() }
