package node

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/range/clockhealth"
	"github.com/tidemarkdb/tidemark/range/node/task"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// healthPeriod is how often the node looks at itself.
const healthPeriod = clockhealth.CheckPeriod

// refusal is why no request is served.
type refusal struct {
	code    kvpb.ErrorCode
	message string
}

// health is whether this node serves.
type health struct {
	// refusal is nil while it does.
	refusal atomic.Pointer[refusal]
	// clockWrong: it does not because its clock is off, or has jumped, so that an operator has to
	// see to it. That the clock has not been compared yet after a start is over by itself in a
	// moment.
	clockWrong atomic.Bool
	// started: all replicas are open. registered: the core answered a heartbeat.
	started, registered atomic.Bool
	// settled: since the start there was a moment at which all groups that prefer this node had a
	// leader.
	settled atomic.Bool
}

// fit says whether this node may lead.
func (h *health) fit() bool { return h.refusal.Load() == nil }

// clockRefused says whether the clock is why this node does not serve, be it wrong or not compared
// yet.
func (h *health) clockRefused() bool {
	r := h.refusal.Load()
	return r != nil && r.code == kvpb.ErrorCode_CLOCK_SKEW
}

// watchHealth looks at the clock and the disks with every tick, and once a second at everything.
func (n *Node) watchHealth(ctx context.Context) {
	next := n.now()
	for task.Pause(ctx, n.config.Tick) == nil {
		n.considerDisk()
		changed, due := n.lookAtClock(), n.now() >= next
		if !changed && !due {
			continue
		}
		if due {
			next = n.now() + int64(healthPeriod)
			n.checkClock()
			n.watchLeaders()
		}
		n.checkHealth()
		if due {
			n.lookAtPeers()
		}
		if !n.health.fit() {
			n.abdicate()
		}
	}
}

// checkHealth decides whether this node serves.
func (n *Node) checkHealth() {
	var r *refusal
	clockWrong := false
	if err := n.config.Log.Err(); err != nil {
		r = &refusal{kvpb.ErrorCode_NODE_UNHEALTHY, fmt.Sprintf("node %s: %v", n.config.ID, err)}
	} else if err := n.config.State.Err(); err != nil {
		r = &refusal{kvpb.ErrorCode_NODE_UNHEALTHY, fmt.Sprintf("node %s: %v", n.config.ID, err)}
	} else {
		r, clockWrong = n.checkClockState()
	}
	n.health.refusal.Store(r)
	n.health.clockWrong.Store(clockWrong)
	n.metrics.setUnfit(r != nil)
}

// Ready says whether this node is of use to clients, and if not, why: one reason a line.
func (n *Node) Ready() (ready bool, reason string) {
	if n.closed.Load() {
		return false, "closed"
	}
	if !n.health.started.Load() {
		return false, "opening its replicas"
	}
	if r := n.health.refusal.Load(); r != nil {
		return false, r.message
	}
	if !n.tables.Load().Complete {
		return false, "waiting for the partition table from the consistent core"
	}
	if n.health.settled.Load() {
		reasons := n.notServing()
		return len(reasons) == 0, strings.Join(reasons, "\n")
	}
	if missing := n.reconciler.pending(); missing > 0 {
		return false, fmt.Sprintf("%d partitions are being created or removed", missing)
	}
	leaderless := 0
	for _, h := range n.replicas.all() {
		if leader, _ := h.group.Leader(); leader == 0 && h.prefersSelf() &&
			h.group.Failed() == nil && !h.removed.Load() {
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
