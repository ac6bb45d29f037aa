package node

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/range/clockhealth"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// healthPeriod is the interval at which the node checks itself.
const healthPeriod = clockhealth.CheckPeriod

// health says whether this node serves.
type health struct {
	*hosted.Health
	// clockWrong is set if the node does not serve because its clock is off, or has jumped, so that
	// an operator has to act. It is not set while the clock has not been compared yet after a
	// start, which ends by itself.
	clockWrong atomic.Bool
	// started is set when all replicas are open.
	started atomic.Bool
	// settled is set once, at some moment since the start, all groups that prefer this node have
	// had a leader.
	settled atomic.Bool
}

// watchHealth checks the clock and the disks with every tick, and everything once a second.
func (n *Node) watchHealth(ctx context.Context) {
	next := n.base.Now()
	for backoff.Sleep(ctx, n.config.Tick) == nil {
		n.disks.Tick()
		changed, due := n.clock.Look(), n.base.Now() >= next
		if !changed && !due {
			continue
		}
		if due {
			next = n.base.Now() + int64(healthPeriod)
			n.clock.Check()
			n.leaderless.Watch()
		}
		n.checkHealth()
		if due {
			n.self.lookAtPeers()
		}
		if !n.health.Fit() {
			n.transfers.Abdicate()
		}
	}
}

// checkHealth decides whether this node serves.
func (n *Node) checkHealth() {
	var r *hosted.Refusal
	clockWrong := false
	if err := cmp.Or(n.config.Log.Err(), n.config.State.Err()); err != nil {
		r = &hosted.Refusal{Code: kvpb.ErrorCode_NODE_UNHEALTHY,
			Message: fmt.Sprintf("node %s: %v", n.config.ID, err)}
	} else {
		r, clockWrong = n.clock.Refusal()
	}
	n.health.Refusal.Store(r)
	n.health.clockWrong.Store(clockWrong)
	n.metrics.setUnfit(r != nil)
}

// Ready reports whether this node can serve clients, and if not, why: one reason a line.
func (n *Node) Ready() (ready bool, reason string) {
	if n.closed.Load() {
		return false, "closed"
	}
	if !n.health.started.Load() {
		return false, "opening its replicas"
	}
	if r := n.health.Refusal.Load(); r != nil {
		return false, r.Message
	}
	if !n.tables.Load().Complete {
		return false, "waiting for the partition table from the consistent core"
	}
	if n.health.settled.Load() {
		reasons := n.notServing()
		return len(reasons) == 0, strings.Join(reasons, "\n")
	}
	if missing := n.lifecycle.Reconciler.Pending(); missing > 0 {
		return false, fmt.Sprintf("%d partitions are being created or removed", missing)
	}
	leaderless := 0
	for _, h := range n.replicas.All() {
		if leader, _ := h.Group.Leader(); leader == 0 && h.PrefersSelf() &&
			h.Group.Failed() == nil && !h.Removed.Load() {
			leaderless++
		}
	}
	if leaderless > 0 {
		return false, fmt.Sprintf("%d partitions that this node is to lead have no leader yet",
			leaderless)
	}
	n.health.settled.Store(true)
	return true, ""
}

// notServing returns why this node cannot serve at present, though it has been able to: one
// sentence for each reason.
func (n *Node) notServing() (reasons []string) {
	if n.base.DiskFull() {
		reasons = append(reasons, fmt.Sprintf("the disk of node %s is below its reserve: %d "+
			"bytes are left; free disk space",
			n.config.ID, min(n.config.State.FreeBytes(), n.config.Log.FreeBytes())))
	}
	// A few partitions that lost their quorum elsewhere are no reason to turn clients of all the
	// others away.
	some, total, held := n.leaderless.List(5)
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
