package leadership

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// leaderlessFor is how long a partition must be without a leader to count as leaderless: elections
// are shorter.
const leaderlessFor = 10 * time.Second

// Leaderless holds the partitions with a replica here that have no leader.
type Leaderless struct {
	node  *hosted.Node
	count prometheus.Gauge
}

// NewLeaderless makes a Leaderless.
func NewLeaderless(n *hosted.Node) *Leaderless {
	return &Leaderless{n, n.Metrics.Gauge("leaderless_partitions",
		"Partitions with a replica here that have had no leader for 10 s.")}
}

// Watch notes since when each partition here has had no leader. It runs once a second, on the
// health goroutine.
func (l *Leaderless) Watch() {
	now := l.node.Now()
	total := 0
	for _, h := range l.node.Replicas.All() {
		leader, _ := h.Group.Leader()
		switch since := h.LeaderlessSince.Load(); {
		case leader != 0 || h.Group.Failed() != nil || h.Removed.Load():
			if since != 0 {
				h.LeaderlessSince.Store(0)
			}
		case since == 0:
			h.LeaderlessSince.Store(max(now, 1))
		case now-since >= int64(leaderlessFor):
			total++
		}
	}
	l.count.Set(float64(total))
}

// List returns the partitions with a replica here that have had no leader for a while, at most
// limit of them by their ids. total is their number, held the number of replicas here.
func (l *Leaderless) List(limit int) (some []*clusterpb.LeaderlessPartition, total, held int) {
	n := l.node
	now, all := n.Now(), n.Replicas.All()
	var found []*hosted.Replica
	for _, h := range all {
		if since := h.LeaderlessSince.Load(); since != 0 && now-since >= int64(leaderlessFor) {
			found = append(found, h)
		}
	}
	slices.SortFunc(found, func(a, b *hosted.Replica) int { return cmp.Compare(a.ID, b.ID) })
	t := n.Table.Load()
	for _, h := range found[:min(limit, len(found))] {
		p := h.Listed.Load()
		x := &clusterpb.LeaderlessPartition{Partition: uint64(h.ID),
			Keyspace: t.Keyspace(keys.KeyspaceID(p.GetKeyspace())).GetName()}
		for _, r := range p.GetReplicas() {
			if n.Host.Peers().Down(r.GetNode()) {
				x.SilentNodes = append(x.SilentNodes, r.GetNode())
			}
		}
		some = append(some, x)
	}
	return some, len(found), len(all)
}
