package node

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// leaderlessFor is how long a partition has been without a leader before that counts: elections are
// shorter.
const leaderlessFor = 10 * time.Second

// watchLeaders notes since when each partition here has no leader. It runs once a second, on the
// health goroutine.
func (n *Node) watchLeaders() {
	now := n.base.Now()
	total := 0
	for _, h := range n.replicas.All() {
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
	n.metrics.leaderless.Set(float64(total))
}

// Leaderless lists the partitions with a replica here that have had no leader for a while, at most
// limit of them by their ids, and says how many there are, of how many that are here.
func (n *Node) Leaderless(limit int) (some []*clusterpb.LeaderlessPartition, total, held int) {
	now, all := n.base.Now(), n.replicas.All()
	var found []*hosted.Replica
	for _, h := range all {
		if since := h.LeaderlessSince.Load(); since != 0 && now-since >= int64(leaderlessFor) {
			found = append(found, h)
		}
	}
	slices.SortFunc(found, func(a, b *hosted.Replica) int { return cmp.Compare(a.ID, b.ID) })
	t := n.tables.Load()
	for _, h := range found[:min(limit, len(found))] {
		p := h.Listed.Load()
		x := &clusterpb.LeaderlessPartition{Partition: uint64(h.ID),
			Keyspace: t.Keyspace(keys.KeyspaceID(p.GetKeyspace())).GetName()}
		for _, r := range p.GetReplicas() {
			if n.host.PeerDown(r.GetNode()) {
				x.SilentNodes = append(x.SilentNodes, r.GetNode())
			}
		}
		some = append(some, x)
	}
	return some, len(found), len(all)
}

// notServing says why this node is of no use at present, though it has been: one sentence each.
func (n *Node) notServing() (reasons []string) {
	if n.base.DiskFull() {
		reasons = append(reasons, fmt.Sprintf("the disk of node %s is below its reserve: %d "+
			"bytes are left; free disk space",
			n.config.ID, min(n.config.State.FreeBytes(), n.config.Log.FreeBytes())))
	}
	// A few partitions that lost their quorum elsewhere are no reason to keep clients from all the
	// others.
	some, total, held := n.Leaderless(5)
	if total == 0 || 2*total < held {
		return reasons
	}
	names := make([]string, 0, len(some)+1)
	for _, p := range some {
		name := keys.PartitionID(p.Partition).String()
		if len(p.SilentNodes) > 0 {
			name += fmt.Sprintf(" (no answer from nodes %s)",
				strings.Trim(fmt.Sprint(p.SilentNodes), "[]"))
		}
		names = append(names, name)
	}
	if total > len(some) {
		names = append(names, fmt.Sprintf("%d more", total-len(some)))
	}
	return append(reasons, fmt.Sprintf("%d of the %d partitions with a replica here have no "+
		"leader: %s", total, held, strings.Join(names, ", ")))
}
