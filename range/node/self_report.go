package node

import (
	"slices"
	"strings"

	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// maxSilent bounds the nodes that a heartbeat names as silent, or as behind.
	maxSilent = 1000
	// maxNotReady bounds the reasons that a heartbeat gives, and maxReasonBytes each of them.
	maxNotReady    = 8
	maxReasonBytes = 512
)

// selfReport is what a node tells the core of itself and its peers with each heartbeat, and looks
// at once a second: to look is dear where there are many replicas, and urgent heartbeats are
// frequent.
type selfReport struct {
	behind   []host.HostCount
	notReady []string
}

// lookAtPeers makes the next selfReport. It runs on the health goroutine.
func (n *Node) lookAtPeers() {
	r := &selfReport{behind: n.behind.Next(n.host)}
	if ready, reason := n.Ready(); !ready {
		for line := range strings.SplitSeq(reason, "\n") {
			if len(r.notReady) == maxNotReady {
				break
			}
			r.notReady = append(r.notReady,
				strings.ToValidUTF8(line[:min(len(line), maxReasonBytes)], ""))
		}
	}
	if last := n.selfReport.Swap(r); last != nil && !slices.Equal(last.notReady, r.notReady) {
		n.reports.wake.Send()
	}
}

// reportSelf adds to a node's figures what it last found of itself, and which peers it does not
// hear at present.
func (n *Node) reportSelf(stats *clusterpb.NodeStats) {
	silent := n.host.SilentPeers()
	stats.Silent = silent[:min(len(silent), maxSilent)]
	r := n.selfReport.Load()
	if r == nil {
		return
	}
	stats.NotReady = r.notReady
	for _, b := range r.behind[:min(len(r.behind), maxSilent)] {
		stats.Behind = append(stats.Behind,
			&clusterpb.ReplicasBehind{Node: b.Host, Replicas: uint64(b.Replicas)})
	}
}
