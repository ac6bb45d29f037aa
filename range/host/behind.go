package host

import (
	"cmp"
	"slices"
	"sync"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// NearlyAll is the number of entries that a replica may lack and still count as caught up: while a
// partition is written to, its followers always lack the entries that are on their way.
const NearlyAll = 64

// HostCount is the number of replicas of some kind on a host.
type HostCount struct {
	Host     uint64
	Replicas int
}

// Behind counts, for each host, the replicas that have not caught up with their leader on this
// host. Counting goes in rounds. Each group adds its followers on its shard worker, and the next
// round returns the sums of the round before, so no caller waits for a shard. The zero value is
// ready. Groups may add to a round while its methods run; only one goroutine may begin rounds.
type Behind struct {
	mu    sync.Mutex
	round uint64
	found map[uint64]int
}

// Next returns the counts of the last round, by ascending host, and begins another round.
//
// A round asks the groups that are led here and awake. It also asks sleeping groups with a member
// on a host that is silent, or may have been silent when the group fell asleep. Any other sleeping
// group fell asleep when all its members had all entries.
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

// lateRounds is the number of election timeouts during which a host counts as just returned. In
// that time its sleeping groups are woken and catch up.
const lateRounds = 30

// behind lists the hosts of the voters that have not caught up with this leader. It runs on the
// shard worker. It ignores Progress.Active, which is false for a moment after each check of the
// quorum.
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
