package kv

import (
	"context"
	"time"
)

// NodeLatency is how far away a node is from this client.
type NodeLatency struct {
	Node         uint64
	Address      string
	Region, Zone string
	// SameZone and SameRegion say whether it is where the client is (Locality).
	SameZone, SameRegion bool
	// Latency is that of small requests, smoothed; 0 if it is not known.
	Latency time.Duration
	// Err is why the node did not answer; nil if it did.
	Err error
}

// NodeLatencies asks each node of the cluster three times, and says how long it took, by the ids of
// the nodes. By that Nearest chooses among replicas of which locality makes none nearer.
func (c *Client) NodeLatencies(ctx context.Context) ([]NodeLatency, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	all := []NodeLatency{}
	for _, n := range c.sender.MeasureNodes(ctx) {
		all = append(all, NodeLatency{Node: uint64(n.Node), Address: n.Info.GetAddress(),
			Region: n.Info.GetLocality().GetRegion(), Zone: n.Info.GetLocality().GetZone(),
			SameZone: n.SameZone, SameRegion: n.SameRegion, Latency: n.Latency, Err: n.Err})
	}
	return all, wrap("latencies", "", nil, ctx.Err())
}
