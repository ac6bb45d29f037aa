package clocks

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/clockhealth"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Clock acts on the findings of clockhealth: it logs them, refuses requests, and gives the node's
// leaderships away.
type Clock struct {
	node  *hosted.Node
	jumps prometheus.Counter
}

// New makes a Clock.
func New(n *hosted.Node) *Clock {
	n.Metrics.GaugeOf("clock_offset_seconds", "Largest offset of a peer's clock from this one, with "+
		"its sign.", func() float64 {
		worst := 0.0
		for _, o := range n.Host.Clocks().Offsets() {
			if s := o.Seconds(); s*s > worst*worst {
				worst = s
			}
		}
		return worst
	})
	n.Metrics.GaugeOf("clock_bound_seconds", "How far this server's clock may be from true time: as "+
		"configured, or as the kernel says. Commit wait takes about as long.",
		func() float64 { return n.Clock.MaxError().Seconds() })
	return &Clock{n, n.Metrics.Counter("clock_jumps_total", "Jumps of this server's clock beyond "+
		"the maximum offset, and smaller steps that took it too far from a peer's.")}
}

// Look notices jumps of the clock, and the end of a quarantine. It returns whether something has
// changed.
func (k *Clock) Look() (changed bool) {
	n := k.node
	c := n.Host.Clocks().Look()
	if c.Jumped {
		k.jumps.Inc()
		n.Logger.Error("THE CLOCK OF THIS SERVER HAS JUMPED: nothing is served until the clocks of its "+
			"peers confirm it", "by", c.Moved.Round(time.Millisecond))
	}
	if c.Believed {
		defer k.startServing()
	}
	if c.AfterJump {
		if c.Forward > 0 {
			for _, h := range n.Replicas.All() {
				h.Replica.ClockWentForward()
			}
		}
		n.Logger.Warn("the clock is believed again", "goes_on_by", c.Forward.Round(time.Millisecond))
	}
	return c.Jumped || c.Believed
}

// Check compares the clock with those of the peers.
func (k *Clock) Check() {
	n := k.node
	changed, outvoted, s := n.Host.Clocks().Check()
	switch {
	case !changed:
	case outvoted:
		n.Logger.Error("THE CLOCK OF THIS SERVER IS WRONG, or those of the others are: nothing is "+
			"served until that is mended; check its time synchronisation", "peers", s.Peers,
			"peers_that_disagree", s.Off, "max_offset", n.Clock.MaxOffset())
	default:
		n.Logger.Info("the clock agrees with the peers' again; serving", "peers", s.Peers)
		k.startServing()
	}
}

// Trusted reports whether leaders here may rely on the clock.
func (k *Clock) Trusted() bool {
	state, _ := k.node.Host.Clocks().State()
	return state == clockhealth.Trusted
}

// Wall is the reading of the clock, for the core; 0 while the clock is not trusted.
func (k *Clock) Wall() uint64 {
	wall, trusted := k.node.Clock.PhysicalReading()
	if !trusted || !k.Trusted() {
		return 0
	}
	return uint64(max(0, wall))
}

// startServing lets leaders serve that were elected while the clock was not believed.
func (k *Clock) startServing() {
	for _, h := range k.node.Replicas.All() {
		h.Replica.ClockTrusted()
	}
}

// Refusal returns why this node does not serve because of its clock, nil if it serves. wrong is set
// if the reason is more than a comparison that has not been made yet.
func (k *Clock) Refusal() (r *hosted.Refusal, wrong bool) {
	n := k.node
	switch state, jump := n.Host.Clocks().State(); state {
	case clockhealth.Outvoted:
		return refusal("the clock of node %s is wrong, or those of others are: it is off by more than "+
			"%s from half of them, or behind one of the others; check its time synchronisation", n.ID,
			n.Clock.MaxOffset()), true
	case clockhealth.Jumped:
		return refusal("the clock of node %s jumped by %v, and those of its peers have not confirmed "+
			"that it is right; check its time synchronisation", n.ID, jump.Round(time.Millisecond)), true
	case clockhealth.Uncompared:
		return refusal("node %s has just started, and has not compared its clock with those of its "+
			"peers yet", n.ID), false
	}
	r = k.rewind()
	return r, r != nil
}

func refusal(format string, of ...any) *hosted.Refusal {
	return &hosted.Refusal{Code: kvpb.ErrorCode_CLOCK_SKEW, Message: fmt.Sprintf(format, of...)}
}

// rewind sets a hybrid clock that is too far ahead back to the physical one, once nothing is served
// or led here by its timestamps; until then it returns why the node does not serve.
func (k *Clock) rewind() *hosted.Refusal {
	n := k.node
	by, tooFar := n.Host.Clocks().Ahead()
	switch {
	case !tooFar:
		return nil
	case n.Health.Fit() || n.Leaders.Count() > 0:
		return refusal("the clock of node %s was wrong, and its timestamps are still %s ahead; it hands "+
			"over what it leads before it serves again", n.ID, by)
	}
	n.Logger.Info("the hybrid clock goes back to the physical one, which was wrong", "by", by)
	n.Host.Clocks().Rewind()
	return nil
}
