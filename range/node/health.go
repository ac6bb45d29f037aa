package node

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// healthPeriod is how often the node looks at itself.
const healthPeriod = time.Second

// refusal is why no request is served.
type refusal struct {
	code    kvpb.ErrorCode
	message string
}

// health is whether this node serves.
type health struct {
	// refusal is nil while it does.
	refusal atomic.Pointer[refusal]
	// clockWrong: it does not because its clock is off, or has jumped, so that somebody has to look after it. That the clock has not been
	// compared yet after a start is over in a moment, without anybody.
	clockWrong atomic.Bool
	// started: all replicas are open. registered: the core answered a heartbeat.
	started, registered atomic.Bool
	// settled: since the start there was a moment at which all groups that prefer this node had a leader.
	settled atomic.Bool
}

// fit says whether this node may lead.
func (h *health) fit() bool { return h.refusal.Load() == nil }

// clockRefused says whether the clock is why this node does not serve, be it wrong or not compared yet.
func (h *health) clockRefused() bool {
	r := h.refusal.Load()
	return r != nil && r.code == kvpb.ErrorCode_CLOCK_SKEW
}

// watchHealth looks at the clock and the disks with every tick, and once a second at everything.
func (n *Node) watchHealth(ctx context.Context) {
	next := n.now()
	for pause(ctx, n.config.Tick) == nil {
		n.considerDisk()
		changed, due := n.lookAtClock(), n.now() >= next
		if !changed && !due {
			continue
		}
		if due {
			next = n.now() + int64(healthPeriod)
			n.checkSkew()
			n.watchLeaders()
		}
		n.checkHealth()
		if !n.health.fit() {
			n.abdicate()
		}
	}
}

// checkSkew compares the clock with those of the peers.
func (n *Node) checkSkew() {
	changed, stands := n.skew.check(n.now())
	if !changed {
		return
	}
	if n.skew.unhealthy.Load() {
		n.log.Error("THE CLOCK OF THIS SERVER IS WRONG, or those of the others are: nothing is served until that is mended; "+
			"check its time synchronisation", "peers", stands.peers, "peers_that_disagree", stands.off, "max_offset", n.config.Clock.MaxOffset())
	} else {
		n.log.Info("the clock agrees with the peers' again; serving", "peers", stands.peers)
	}
}

// checkHealth decides whether this node serves.
func (n *Node) checkHealth() {
	var r *refusal
	wrong := false
	logErr, stateErr := n.config.Log.Err(), n.config.State.Err()
	switch {
	case logErr != nil:
		r = &refusal{kvpb.ErrorCode_NODE_UNHEALTHY, fmt.Sprintf("node %s: %v", n.config.ID, logErr)}
	case stateErr != nil:
		r = &refusal{kvpb.ErrorCode_NODE_UNHEALTHY, fmt.Sprintf("node %s: %v", n.config.ID, stateErr)}
	case n.skew.unhealthy.Load():
		wrong = true
		r = &refusal{kvpb.ErrorCode_CLOCK_SKEW, fmt.Sprintf("the clock of node %s is wrong, or those of others are: it is off by more than %s from half of them, or behind one of the others; "+
			"check its time synchronisation", n.config.ID, n.config.Clock.MaxOffset())}
	case n.doubt != nil:
		r, wrong = n.doubt.refusal(n), n.doubt.jump != 0
	case n.clockAhead() > 2*n.config.Clock.MaxAhead():
		r = n.rewind()
		wrong = r != nil
	}
	n.health.refusal.Store(r)
	n.health.clockWrong.Store(wrong)
	n.metrics.setUnfit(r != nil)
}

// clockAhead is how far the hybrid clock is ahead of the physical one. Peers and two right readings of the physical clock bring it
// to twice Clock.MaxAhead at most, which is what the other nodes accept; more comes of a physical clock that was wrong, and
// stays when that is right again.
func (n *Node) clockAhead() time.Duration {
	return time.Duration(n.config.Clock.Now().Wall - n.config.Clock.Physical())
}

// rewind takes a hybrid clock that is too far ahead back to the physical one, once nothing is served or led here by its
// timestamps; until then it returns why nothing is. What holds of a restart holds then: leaders take nothing from their own clock
// alone that versions, closed timestamps and served reads do not say.
func (n *Node) rewind() *refusal {
	if peers, _ := n.host.Peers(); peers == 0 {
		return nil // nobody else has a clock that could be behind
	}
	if n.health.fit() || n.leaders.count() > 0 {
		return &refusal{kvpb.ErrorCode_CLOCK_SKEW, fmt.Sprintf("the clock of node %s was wrong, and its timestamps are still %s ahead; it hands over what it leads "+
			"before it serves again", n.config.ID, n.clockAhead())}
	}
	n.log.Info("the hybrid clock goes back to the physical one, which was wrong", "by", n.clockAhead())
	n.config.Clock.Rewind()
	return nil
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
	if !n.tables.load().Complete {
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
		if leader, _ := h.group.Leader(); leader == 0 && h.prefersSelf() && h.group.Failed() == nil {
			leaderless++
		}
	}
	if leaderless > 0 {
		return false, fmt.Sprintf("%d partitions that this node is to lead have no leader yet", leaderless)
	}
	n.health.settled.Store(true)
	return true, ""
}
