package facts

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/assign"
	"github.com/tidemarkdb/tidemark/placement/planner/rules"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Node returns the planner's form of a node, without the node's own reports.
func Node(n *clusterpb.Node) planner.Node {
	out := planner.Node{ID: keys.NodeID(n.Id), Region: n.Locality.GetRegion(),
		Zone: n.Locality.GetZone(), Tags: n.Tags, Status: planner.Status(n.Status), Alive: n.Alive,
		Displaced: n.Displaced, Since: time.UnixMilli(n.AliveSinceUnixMs)}
	if !n.Alive && n.SilentSinceUnixMs != 0 {
		out.Since = time.UnixMilli(n.SilentSinceUnixMs)
	}
	return out
}

// WithStats adds the node's report, which is nil if the node has not reported.
func WithStats(n planner.Node, stats *clusterpb.NodeStats) planner.Node {
	if stats == nil {
		return n
	}
	used, free := limited(stats.DiskUsedBytes), limited(stats.DiskFreeBytes)
	n.DiskUsed, n.DiskCapacity = used, used+free
	if stats.DiskFull {
		n.DiskCapacity = used
	}
	n.DiskSlow, n.DiskFull, n.ClockWrong = stats.DiskSlow, stats.DiskFull, stats.ClockUnhealthy
	n.Processors = planner.Cores(limited(stats.ProcessorsMicro))
	n.Load = planner.Cores(limited(stats.LoadMicro))
	return n
}

// limited limits a figure that a node reports, so that sums do not overflow.
func limited(figure uint64) int64 { return int64(min(figure, 1<<52)) }

// Keyspace returns the planner's form of a keyspace.
func Keyspace(k *clusterpb.Keyspace) (planner.Keyspace, error) {
	out := planner.Keyspace{ID: keys.KeyspaceID(k.Id), Name: k.Name,
		Replicas: int(k.ReplicationFactor), NoAuto: k.NoAuto,
		SplitSize: limited(k.SplitSizeBytes), MergeSize: limited(k.MergeSizeBytes)}
	var err error
	out.Rules, out.Leaders, err = ParsePlacement(k.Placement, k.Leaders, out.Replicas)
	return out, err
}

// Spec describes the replicas of a new keyspace that have to be placed, without the number of
// partitions.
func Spec(k *clusterpb.Keyspace) (assign.Spec, error) {
	ks, err := Keyspace(k)
	return assign.Spec{Keyspace: ks.ID, Replicas: ks.Replicas, Rules: ks.Rules,
		Leaders: ks.Leaders}, err
}

// ParsePlacement parses the placement of a keyspace and its preferences for leaders.
func ParsePlacement(
	placement, leaders string, replicas int,
) (rules.Rules, rules.Selectors, error) {
	wanted, err := rules.Parse(placement)
	if err != nil {
		return nil, nil, err
	}
	if err := wanted.Validate(replicas); err != nil {
		return nil, nil, err
	}
	if leaders == "" {
		return wanted, nil, nil
	}
	prefer, err := rules.ParseSelectors(leaders)
	if err != nil {
		return nil, nil, fmt.Errorf("preferred leaders: %w", err)
	}
	return wanted, prefer, nil
}

// Nodes returns the planner's form of the nodes.
func Nodes(nodes []*clusterpb.Node) []planner.Node {
	out := make([]planner.Node, len(nodes))
	for i, n := range nodes {
		out[i] = Node(n)
	}
	return out
}
