package node

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/config"
)

// closedLag exports how far the closed timestamps of replicas lie behind this server's clock: for
// each leading node the furthest lag, beyond the lag that the keyspaces set. It looks at all
// replicas when it is collected.
type closedLag struct {
	node *Node
	desc *prometheus.Desc
}

func newClosedLag(n *Node) closedLag {
	return closedLag{n, prometheus.NewDesc("tidemark_node_closed_ts_lag_seconds",
		"How far the closed timestamps of replicas here are behind this server's clock, beyond the "+
			"closed lag of their keyspaces: the largest lag among the partitions that the node leads.",
		[]string{"leader"}, nil)}
}

// Describe implements prometheus.Collector.
func (c closedLag) Describe(to chan<- *prometheus.Desc) { to <- c.desc }

// Collect implements prometheus.Collector.
func (c closedLag) Collect(to chan<- prometheus.Metric) {
	for leader, seconds := range c.worst() {
		to <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, seconds,
			strconv.FormatUint(leader, 10))
	}
}

// worst returns the furthest lag by leading node. Other metrics tell of partitions without a
// leader.
func (c closedLag) worst() map[uint64]float64 {
	n, worst := c.node, make(map[uint64]float64)
	now := n.config.Clock.Physical()
	for _, h := range n.replicas.All() {
		id, _ := h.Group.Leader()
		leader := h.Group.HostOf(id)
		if leader == 0 || h.Listed.Load() == nil {
			continue
		}
		closed := h.Replica.Closed().Wall
		if closed == 0 {
			continue // the replica is new, and has heard nothing
		}
		lag := n.tables.Load().ClosedLag(keys.KeyspaceID(h.Listed.Load().GetKeyspace()))
		if lag == 0 {
			lag = config.DefaultClosedLag
		}
		worst[leader] = max(worst[leader], float64(now-closed-int64(lag))/1e9)
	}
	return worst
}
