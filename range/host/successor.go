package host

import (
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Successor looks for the replica that is best suited to lead a group that is led here: of those
// that are there, on the hosts that rank highest, the one that has most. rank says how well a host
// is suited; 0 is not at all. Successor calls report with the replica and with the term of the
// leadership, or with 0 if there is none (or the group is not led here any more), on the shard
// worker or on the caller's goroutine.
func (g *Group) Successor(rank func(host uint64) int,
	report func(best keys.ReplicaID, term uint64)) {
	found := func(g *Group) {
		l := g.core.Leadership()
		var best keys.ReplicaID
		var highest int
		var most uint64
		if l.IsLeader {
			g.core.Followers(func(id keys.ReplicaID, p group.Progress) {
				at := g.HostOf(id)
				if !g.Configuration().Electable(id) || !p.Active || p.Snapshot || g.host.PeerDown(at) {
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
