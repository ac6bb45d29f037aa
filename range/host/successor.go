package host

import (
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Successor looks for the replica that is best suited to lead a group that is led here: of those
// that are there, on hosts that suit, the one that has most. It calls report with it and with the
// term of the leadership, or with 0 if there is none (or the group is not led here any more), on
// the shard worker or on the caller's goroutine.
func (g *Group) Successor(suits func(host uint64) bool, report func(best keys.ReplicaID, term uint64)) {
	found := func(g *Group) {
		l := g.core.Leadership()
		var best keys.ReplicaID
		var most uint64
		if l.IsLeader {
			g.core.Followers(func(id keys.ReplicaID, p group.Progress) {
				at := g.hosts[id]
				if !p.Active || p.Snapshot || g.host.PeerDown(at) || !suits(at) {
					return
				}
				if best == 0 || p.Match > most {
					best, most = id, p.Match
				}
			})
		}
		report(best, l.Term)
	}
	if !g.do(found) {
		report(0, 0)
	}
}
