package host

import (
	"math"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// AnyLag is the lag of Successor for those to whom any follower is better than this leader.
const AnyLag = math.MaxUint64

// Successor looks for the replica that is best suited to lead a group that is led here: of those
// that are there and lack no more than lag of the entries that are applied here, on the hosts that
// rank highest, the one that has most. rank says how well a host is suited; 0 is not at all. A
// follower that lags leads nothing before it has the rest, and no replica does meanwhile. Successor
// calls report with the replica and with the term of the
// leadership, or with 0 if there is none (or the group is not led here any more), on the shard
// worker or on the caller's goroutine.
func (g *Group) Successor(rank func(host uint64) int, lag uint64,
	report func(best keys.ReplicaID, term uint64)) {
	found := func(g *Group) {
		l := g.core.Leadership()
		var best keys.ReplicaID
		var highest int
		var most uint64
		if l.IsLeader {
			applied := g.core.Applied()
			g.core.Followers(func(id keys.ReplicaID, p group.Progress) {
				at := g.HostOf(id)
				if !g.Configuration().Electable(id) || !p.Active || p.Snapshot ||
					g.host.PeerDown(at) || p.Match < applied && applied-p.Match > lag {
					return
				}
				r := rank(at)
				if r > highest || r == highest && r > 0 && p.Match > most {
					best, highest, most = id, r, p.Match
				}
			})
		}
		report(best, l.Term)
	}
	if !g.do(found) {
		report(0, 0)
	}
}
