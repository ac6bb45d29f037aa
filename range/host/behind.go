package host

import (
	"cmp"
	"slices"
	"sync"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// NearlyAll is how many entries a replica may lack that counts as caught up: while a partition is
// written to, its followers always lack what is on its way.
const NearlyAll = 64

// HostCount is how many replicas a host has of some kind.
type HostCount struct {
	Host     uint64
	Replicas int
}

// Behind counts the replicas that have not caught up with their leaders on this host. A round is
// begun, each group answers on its shard worker, and the next round takes what the one before has
// found, so nobody waits for a shard. The zero value is ready. Its methods may be called at the
// same time as the groups answer; one goroutine begins rounds.
type Behind struct {
	mu    sync.Mutex
	round uint64
	found map[uint64]int
}

// Next returns what the last round has found, by ascending host, and begins another round.
//
// It asks the groups that are led here and awake, and those that sleep and have a member on a host
// that is silent, or may have been when they fell asleep. Another group that sleeps has fallen
// asleep when all its members had everything.
func (b *Behind) Next(h *Host) []HostCount {
	b.mu.Lock()
	b.round++
	round, last := b.round, b.found
	b.found = map[uint64]int{}
	b.mu.Unlock()
	away := h.peers.Lately(h.now(), int64(h.config.Tick)*int64(h.config.ElectionTicks)*lateRounds)
	h.Groups(func(g *Group) {
		if !g.leadership.Load().IsLeader || !g.stirring.Load() && !g.onAny(away) {
			return
		}
		g.do(func(g *Group) {
			behind := g.behind()
			if len(behind) == 0 {
				return
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.round != round {
				return
			}
			for _, host := range behind {
				b.found[host]++
			}
		})
	})
	counts := make([]HostCount, 0, len(last))
	for host, n := range last {
		counts = append(counts, HostCount{host, n})
	}
	slices.SortFunc(counts, func(a, b HostCount) int { return cmp.Compare(a.Host, b.Host) })
	return counts
}

// lateRounds is for how many election timeouts a host counts as one that has just come back: until
// then its groups that sleep are woken, and catch up.
const lateRounds = 30

// behind lists the hosts of the voters that have not caught up with this leader. It is called by
// the shard worker. Progress.Active does not count: it is false for a moment after each check of
// the quorum.
func (g *Group) behind() (hosts []uint64) {
	if !g.core.Leadership().IsLeader {
		return nil
	}
	applied, asleep := g.core.Applied(), !g.awake
	g.core.Followers(func(id keys.ReplicaID, p group.Progress) {
		switch {
		case p.Role == group.Learner:
		case asleep && !g.core.SleepsWithout(id):
		case asleep, p.Snapshot, p.Match+NearlyAll < applied, g.isAway(id):
			hosts = append(hosts, g.HostOf(id))
		}
	})
	return hosts
}
