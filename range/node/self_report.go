package node

import (
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/node/loadmeter"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// maxSilent bounds the nodes that a heartbeat names as silent, or as behind.
	maxSilent = 1000
	// maxNotReady bounds the reasons that a heartbeat gives, and maxReasonBytes each of them.
	maxNotReady    = 8
	maxReasonBytes = 512
)

// selfReport is what a node tells the core about itself and its peers with each heartbeat. It is
// made once a second, not for each heartbeat: making it is expensive with many replicas, and urgent
// heartbeats are frequent.
type selfReport struct {
	behind   []host.HostCount
	notReady []string
}

// self makes the node's part of reports.
type self struct {
	node *Node
	load processLoad
	// behind counts replicas that have not caught up. Only the health goroutine uses it.
	behind host.Behind
	// last is nil until the health goroutine has made the first report.
	last atomic.Pointer[selfReport]
}

// Describe implements reports.Self.
func (s *self) Describe(h *hosted.Replica, r *clusterpb.PartitionReport) {
	if r.Described != nil {
		r.SplitOff = s.node.lifecycle.Children.SplitOff(h.ID)
	}
	s.node.settling.add(h)
	if h.Leading.Load() && !h.Removed.Load() {
		s.node.orders.describe(h, r)
	}
}

// Take implements reports.Self.
func (s *self) Take(r *clusterpb.HeartbeatResponse) {
	s.node.quotas.Take(r.GetShares())
	s.node.orders.take(r.GetOrders())
}

// maxBroken bounds the broken replicas that a heartbeat names; when they are gone, it names others.
const maxBroken = 1000

// Stats implements reports.Self.
func (s *self) Stats() *clusterpb.NodeStats {
	n := s.node
	failed := n.lifecycle.Failed()
	slow, sync := n.host.DiskSlow()
	stats := &clusterpb.NodeStats{
		Replicas:        uint64(len(n.replicas.All())),
		Leaders:         uint64(n.leaders.Count()),
		DiskUsedBytes:   n.config.Log.UsedBytes() + n.config.State.UsedBytes(),
		DiskFreeBytes:   n.config.State.FreeBytes(),
		DiskFull:        n.base.DiskFull(),
		DiskSlow:        slow,
		SyncMicros:      uint64(sync.Microseconds()),
		ClockUnhealthy:  n.health.clockWrong.Load(),
		FailedReplicas:  uint64(len(failed)),
		Broken:          failed[:min(len(failed), maxBroken)],
		ProcessorsMicro: uint64(runtime.GOMAXPROCS(0)) * 1_000_000,
		LoadMicro:       s.load.micro(),
		ClockUnixNanos:  n.clock.Wall(),

		ProcessorWaitMicros: uint64(n.host.ProcessorWait().Microseconds()),
		Demands:             n.quotas.Demands(),
	}
	s.addPeers(stats)
	return stats
}

// lookAtPeers makes the next selfReport. It runs on the health goroutine.
func (s *self) lookAtPeers() {
	r := &selfReport{behind: s.behind.Next(s.node.host)}
	if ready, reason := s.node.Ready(); !ready {
		for line := range strings.SplitSeq(reason, "\n") {
			if len(r.notReady) == maxNotReady {
				break
			}
			r.notReady = append(r.notReady,
				strings.ToValidUTF8(line[:min(len(line), maxReasonBytes)], ""))
		}
	}
	if last := s.last.Swap(r); last != nil && !slices.Equal(last.notReady, r.notReady) {
		s.node.reports.Hurry()
	}
}

// addPeers adds the last selfReport to a node's figures, and the peers that it does not hear at
// present.
func (s *self) addPeers(stats *clusterpb.NodeStats) {
	silent := s.node.host.Peers().Silent()
	stats.Silent = silent[:min(len(silent), maxSilent)]
	trips := s.node.host.RoundTrips()
	for _, t := range trips[:min(len(trips), maxSilent)] {
		stats.RoundTrips = append(stats.RoundTrips,
			&clusterpb.PeerRoundTrip{Peer: t.Host, Micros: uint64(t.Took.Microseconds())})
	}
	r := s.last.Load()
	if r == nil {
		return
	}
	stats.NotReady = r.notReady
	for _, b := range r.behind[:min(len(r.behind), maxSilent)] {
		stats.Behind = append(stats.Behind,
			&clusterpb.ReplicasBehind{Node: b.Host, Replicas: uint64(b.Replicas)})
	}
}

// HistoryOf returns what a node has done in the last hour. The History is the node's.
func HistoryOf(n *Node) *loadmeter.History { return &n.reports.History }
