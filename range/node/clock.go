package node

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/range/clockhealth"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// What this node does about what clockhealth finds: it says so, refuses requests, and gives its
// leaderships away.

// lookAtClock notices jumps of the clock, and the end of a quarantine. It says whether something
// has changed.
func (n *Node) lookAtClock() (changed bool) {
	c := n.host.Clocks().Look()
	if c.Jumped {
		n.metrics.clockJumps.Inc()
		n.log.Error(
			"THE CLOCK OF THIS SERVER HAS JUMPED: nothing is served until the clocks of its peers "+
				"confirm it",
			"by",
			c.Moved.Round(time.Millisecond),
		)
	}
	if c.Believed {
		defer n.startServing()
	}
	if c.AfterJump {
		if c.Forward > 0 {
			for _, h := range n.replicas.All() {
				h.Replica.ClockWentForward()
			}
		}
		n.log.Warn("the clock is believed again", "goes_on_by", c.Forward.Round(time.Millisecond))
	}
	return c.Jumped || c.Believed
}

// checkClock compares the clock with those of the peers.
func (n *Node) checkClock() {
	changed, outvoted, s := n.host.Clocks().Check()
	switch {
	case !changed:
	case outvoted:
		n.log.Error(
			"THE CLOCK OF THIS SERVER IS WRONG, or those of the others are: nothing is served "+
				"until "+
				"that is mended; check its time synchronisation",
			"peers",
			s.Peers,
			"peers_that_disagree",
			s.Off,
			"max_offset",
			n.config.Clock.MaxOffset(),
		)
	default:
		n.log.Info("the clock agrees with the peers' again; serving", "peers", s.Peers)
		n.startServing()
	}
}

// clockTrusted says whether leaders here may go by the clock.
func (n *Node) clockTrusted() bool {
	state, _ := n.host.Clocks().State()
	return state == clockhealth.Trusted
}

// trustedClock is what the clock shows, for the core; 0 while it is not trusted.
func (n *Node) trustedClock() uint64 {
	wall, trusted := n.config.Clock.PhysicalReading()
	if !trusted || !n.clockTrusted() {
		return 0
	}
	return uint64(max(0, wall))
}

// startServing has the leaders serve that were elected while the clock was not believed.
func (n *Node) startServing() {
	for _, h := range n.replicas.All() {
		h.Replica.ClockTrusted()
	}
}

// checkClockState is why this node does not serve because of its clock, nil if it does; wrong says
// that it is more than a comparison that has not been made yet.
func (n *Node) checkClockState() (r *hosted.Refusal, wrong bool) {
	switch state, jump := n.host.Clocks().State(); state {
	case clockhealth.Outvoted:
		return n.clockRefusal(
			"the clock of node %s is wrong, or those of others are: it is off by more than "+
				"%s from half of them, or behind one of the others; check its time synchronisation",
			n.config.ID,
			n.config.Clock.MaxOffset(),
		), true
	case clockhealth.Jumped:
		return n.clockRefusal(
			"the clock of node %s jumped by %v, and those of its peers have not confirmed "+
				"that it is right; check its time synchronisation",
			n.config.ID,
			jump.Round(time.Millisecond),
		), true
	case clockhealth.Uncompared:
		return n.clockRefusal(
			"node %s has just started, and has not compared its clock with those of its "+
				"peers yet",
			n.config.ID,
		), false
	}
	r = n.rewind()
	return r, r != nil
}

func (n *Node) clockRefusal(format string, of ...any) *hosted.Refusal {
	return &hosted.Refusal{Code: kvpb.ErrorCode_CLOCK_SKEW, Message: fmt.Sprintf(format, of...)}
}

// rewind takes a hybrid clock that is too far ahead back to the physical one, once nothing is
// served or led here by its timestamps; until then it returns why nothing is.
func (n *Node) rewind() *hosted.Refusal {
	by, tooFar := n.host.Clocks().Ahead()
	switch {
	case !tooFar:
		return nil
	case n.health.Fit() || n.leaders.Count() > 0:
		return n.clockRefusal(
			"the clock of node %s was wrong, and its timestamps are still %s ahead; it hands "+
				"over what it leads before it serves again",
			n.config.ID,
			by,
		)
	}
	n.log.Info("the hybrid clock goes back to the physical one, which was wrong", "by", by)
	n.host.Clocks().Rewind()
	return nil
}
