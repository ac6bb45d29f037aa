package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/placement/planner/explain"
)

// measureScheduler adds the metrics about replicas and operators. All of them are 0 on a member
// that does not lead the core.
func (m *metrics) measureScheduler(s *Server) {
	gauge := func(name, help string, value func(*scheduler) float64) {
		m.collectors = append(m.collectors, prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Name: "tidemark_placement_" + name, Help: help}, func() float64 {
				c := &s.scheduler
				c.mu.Lock()
				defer c.mu.Unlock()
				return value(c)
			}))
	}
	for _, g := range []struct {
		name, help string
		of         func(*explain.Counts) int
	}{
		{"partitions_unavailable", "Partitions of which too few voters answer for a quorum.",
			func(c *explain.Counts) int { return c.NoQuorum }},
		{"partitions_under_replicated",
			"Partitions with fewer sound replicas, on nodes that are not lost, than their " +
				"keyspace wants.",
			func(c *explain.Counts) int { return c.Under }},
		{"partitions_over_replicated", "Partitions with more replicas than their keyspace wants.",
			func(c *explain.Counts) int { return c.TooMany }},
		{"partitions_misplaced", "Partitions with a replica where the placement rules, the spread " +
			"over zones or a decommissioning do not want it.",
			func(c *explain.Counts) int { return c.Breaking + c.Sharing + c.Leaving }},
		{"leaders_misplaced", "Partitions whose leader is on a drained node, or not where its " +
			"keyspace prefers leaders.", func(c *explain.Counts) int { return c.Misled }},
		{"partitions_to_split", "Partitions that are too large or too busy, and are to be split.",
			func(c *explain.Counts) int { return c.Splitting }},
		{"partitions_indivisible", "Partitions that are too large or too busy, and that no split " +
			"helps: one key has the load or the bytes, or all writes go to the end.",
			func(c *explain.Counts) int { return c.Indivisible }},
		{"partitions_to_merge", "Partitions that are small and calm together with their right " +
			"neighbours, and are to be merged with them.",
			func(c *explain.Counts) int { return c.Merging }},
	} {
		gauge(g.name, g.help, func(c *scheduler) float64 { return float64(g.of(&c.last.counts)) })
	}
	gauge("operators_waiting", "Partitions that wait for a limit, a pause or room to be changed.",
		func(c *scheduler) float64 { return float64(c.last.proposal.Waiting) })
	gauge("partitions_blocked", "Partitions about which nothing can be done although something is "+
		"wrong.", func(c *scheduler) float64 { return float64(c.last.proposal.Blocked) })
	gauge("operator_oldest_age_seconds", "The age of the oldest change that is under way.",
		func(c *scheduler) float64 {
			var oldest time.Duration
			for _, o := range c.operators.flying {
				oldest = max(oldest, time.Since(time.UnixMilli(o.CreatedUnixMs)))
			}
			return oldest.Seconds()
		})
	gauge("frozen_partition_oldest_age_seconds", "The age of the oldest freeze: a frozen partition "+
		"serves nothing until its left neighbour has been merged with it.",
		func(c *scheduler) float64 {
			var oldest time.Duration
			for _, f := range c.frozen {
				oldest = max(oldest, time.Since(f.since))
			}
			return oldest.Seconds()
		})
	gauge("operator_bytes", "What the snapshots of the changes that are under way send at most.",
		func(c *scheduler) (bytes float64) {
			for _, o := range c.operators.flying {
				bytes += float64(o.Bytes)
			}
			return bytes
		})
}
