package admin

import (
	"context"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// NodeInfo describes a data node.
type NodeInfo struct {
	ID           uint64
	Address      string
	HTTPAddress  string
	Region, Zone string
	Version      string
	// Tags are further labels, which placement rules can name.
	Tags  []string
	Alive bool
	// SilentSince is the time at which the node was last heard of; zero if the node is alive.
	SilentSince time.Time
	// SilentFor is the time since SilentSince, by the cluster's clock.
	SilentFor time.Duration
	// Status is the wanted status: whether the node is drained or decommissioned.
	Status   NodeStatus
	Started  time.Time
	Replicas int
	Leaders  int
	DiskUsed uint64
	DiskFree uint64
	DiskFull bool
	// DiskSlow: a sync of the node's log takes many times longer than at other nodes, so the node
	// hands its leaderships to them. LogSync is the time that a sync takes; 0: not known.
	DiskSlow bool
	LogSync  time.Duration
	// ProcessorWait is the time for which the node's process waits for a processor: in half of the
	// last seconds, some work was delayed by that time. It is 0 if it is not known.
	ProcessorWait time.Duration
	// RoundTrips has the known round-trip times to other nodes, by node.
	RoundTrips map[uint64]time.Duration
	// ClockUnhealthy: the node's clock is wrong or has jumped, and the node serves nothing.
	ClockUnhealthy bool
	// FailedReplicas is the number of replicas on the node's disk that are damaged or have failed
	// for another reason, and serve nothing.
	FailedReplicas uint64
	// NotReady has the reasons why the node is not ready, one sentence each; empty if it is ready.
	NotReady []string
	// Silent are the nodes that share partitions with this node and that this node does not hear.
	Silent []uint64
	// Behind counts, by node, the replicas that lag in partitions that this node leads.
	Behind map[uint64]int
	// AwaitsReports are nodes that are alive and have not reported since this node has started. While
	// there is any, it is not known whether the node's replicas have caught up.
	AwaitsReports []uint64
}

func nodeInfo(n *clusterpb.Node) NodeInfo {
	info := NodeInfo{
		ID: n.Id, Address: n.Address, HTTPAddress: n.HttpAddress,
		Region: n.GetLocality().GetRegion(), Zone: n.GetLocality().GetZone(),
		Version: n.Version, Alive: n.Alive, Tags: slices.Clone(n.Tags),
		Status:   nodeStatusOf(n.Status),
		Replicas: int(n.GetStats().GetReplicas()), Leaders: int(n.GetStats().GetLeaders()),
		DiskUsed: n.GetStats().GetDiskUsedBytes(), DiskFree: n.GetStats().GetDiskFreeBytes(),
		DiskFull: n.GetStats().GetDiskFull(), ClockUnhealthy: n.GetStats().GetClockUnhealthy(),
		DiskSlow:       n.GetStats().GetDiskSlow(),
		LogSync:        micros(n.GetStats().GetSyncMicros()),
		ProcessorWait:  micros(n.GetStats().GetProcessorWaitMicros()),
		RoundTrips:     roundTrips(n.GetStats().GetRoundTrips()),
		FailedReplicas: n.GetStats().GetFailedReplicas(),
		NotReady:       slices.Clone(n.GetStats().GetNotReady()),
		Silent:         slices.Clone(n.GetStats().GetSilent()),
		AwaitsReports:  slices.Clone(n.AwaitsReports),
	}
	for _, b := range n.GetStats().GetBehind() {
		if info.Behind == nil {
			info.Behind = map[uint64]int{}
		}
		info.Behind[b.Node] += int(b.Replicas)
	}
	if n.SilentSinceUnixMs > 0 && !n.Alive {
		info.SilentSince = time.UnixMilli(n.SilentSinceUnixMs)
	}
	if n.StartedUnix > 0 {
		info.Started = time.Unix(n.StartedUnix, 0)
	}
	return info
}

// micros converts a number of microseconds in a server's report.
func micros(n uint64) time.Duration { return time.Duration(min(n, 1<<40)) * time.Microsecond }

func roundTrips(reported []*clusterpb.PeerRoundTrip) map[uint64]time.Duration {
	all := make(map[uint64]time.Duration, len(reported))
	for _, t := range reported {
		all[t.Peer] = micros(t.Micros)
	}
	return all
}

// Nodes lists the data nodes.
func (c *Client) Nodes(ctx context.Context) ([]NodeInfo, error) {
	r, err := ask(ctx, c, "list nodes", "", clusterpb.ClusterClient.ListNodes,
		&clusterpb.ListNodesRequest{})
	var all []NodeInfo
	for _, n := range r.GetNodes() {
		info := nodeInfo(n)
		if !info.SilentSince.IsZero() {
			info.SilentFor = ago(n.SilentSinceUnixMs, r.NowUnixMs)
		}
		all = append(all, info)
	}
	return all, err
}

// ago returns the time since unixMs by the clock of the member that reported it (nowUnixMs).
// Members of earlier versions do not report their clock: then by the clock of this machine.
func ago(unixMs, nowUnixMs int64) time.Duration {
	if nowUnixMs == 0 {
		nowUnixMs = time.Now().UnixMilli()
	}
	return time.Duration(max(nowUnixMs-unixMs, 0)) * time.Millisecond
}

// NodeLatency is the latency between this client and a node.
type NodeLatency struct {
	Node         uint64
	Address      string
	Region, Zone string
	// SameZone and SameRegion report whether the node is in the client's zone and region (Locality).
	SameZone, SameRegion bool
	// Latency is the latency of small requests, smoothed; 0 if it is not known.
	Latency time.Duration
	// Err says why the node did not answer. It is nil if it did.
	Err error
}

// NodeLatencies sends each node of the cluster three requests and returns the measured latencies,
// in the order of the node ids. Nearest uses these latencies to choose among replicas that are
// equally near by locality.
func (c *Client) NodeLatencies(ctx context.Context) ([]NodeLatency, error) {
	ctx, cancel := c.conn.Bound(ctx)
	defer cancel()
	all := []NodeLatency{}
	for _, n := range c.conn.Sender.MeasureNodes(ctx) {
		all = append(all, NodeLatency{Node: uint64(n.Node), Address: n.Info.GetAddress(),
			Region: n.Info.GetLocality().GetRegion(), Zone: n.Info.GetLocality().GetZone(),
			SameZone: n.SameZone, SameRegion: n.SameRegion, Latency: n.Latency, Err: n.Err})
	}
	return all, c.conn.Wrap("latencies", "", ctx.Err())
}
