package node

import (
	"fmt"
	"math"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// measureFor is for how many election timeouts after its start a node waits at most for measurements of more clocks than one.
const measureFor = 3

const (
	// disputedFor is how long a clock has been disputed when those that are behind it have stopped: what they have measured before is forgotten, and then they need
	// a few pings and skewChecks.
	disputedFor = 2*skewWindow + (skewChecks+1)*healthPeriod
	// disputedByStep is the same if it was this node's clock that has moved. Then that is probably wrong; but a slow network can look like it, and that may last.
	disputedByStep = 30 * time.Second
)

// doubt is why this node does not know whether its clock is right. Of the health goroutine, once that runs.
type doubt struct {
	// jump is by how much the clock jumped last; zero if this is about the start.
	jump time.Duration
	// until is when one peer is enough to end the doubt of a start, of Node.now.
	until int64
	// patience is how long the clock has to be disputed until it is believed all the same, and since the beginning of that; math.MaxInt64 if it is not.
	patience time.Duration
	since    int64
}

// settled says whether the clock goes with those of the peers well enough, or long enough.
func (d *doubt) settled(a agreement, now int64) bool {
	if a != disputed {
		d.since = math.MaxInt64
		return a == undisputed
	}
	d.since = min(d.since, now)
	return now-d.since >= int64(d.patience)
}

func (d *doubt) refusal(n *Node) *refusal {
	if d.jump == 0 {
		return &refusal{kvpb.ErrorCode_CLOCK_SKEW, fmt.Sprintf("node %s has just started, and has not compared its clock with those of its peers yet", n.config.ID)}
	}
	return &refusal{kvpb.ErrorCode_CLOCK_SKEW, fmt.Sprintf("the clock of node %s jumped by %v, and those of its peers have not confirmed that it is right; "+
		"check its time synchronisation", n.config.ID, d.jump.Round(time.Millisecond))}
}

// doubtAtStart: what the clock of the machine shows is not believed before it has been compared. A node without peers believes it.
func (n *Node) doubtAtStart() {
	if peers, _ := n.host.Peers(); peers > 0 {
		now := n.now()
		n.doubt = &doubt{until: now + measureFor*int64(n.config.electionTimeout()), patience: disputedFor, since: math.MaxInt64}
	}
}

// lookAtClock notices jumps of the clock, and the end of doubts. It says whether something has changed. Until a doubt is over this node
// goes by the time before the jump, so nobody ever sees another one; it serves nothing all the same, since a clock that seems to have
// jumped forward may have been right, and the machine have stood still.
func (n *Node) lookAtClock() (changed bool) {
	steady := n.config.Clock.Steady()
	if steady != nil {
		moved, jumped, before := n.skew.look(steady, n.now(), n.host.ClockMoves)
		switch {
		case jumped:
			changed = true
			n.metrics.clockJumps.Inc()
			n.host.DistrustLeases()
			n.doubtJump(moved, before)
			n.log.Error("THE CLOCK OF THIS SERVER HAS JUMPED: nothing is served until the clocks of its peers confirm it", "by", moved.Round(time.Millisecond))
		case n.doubt != nil && n.skew.step(moved):
			n.doubt.since = math.MaxInt64
		}
	}
	if n.doubt == nil || !n.clockConfirmed() {
		return changed
	}
	if n.doubt.jump != 0 {
		n.host.DistrustLeases() // the machine may have been suspended again since the jump
		by := steady.Trust()
		if by > 0 {
			for _, h := range n.replicas.all() {
				h.replica.ClockWentForward()
			}
		}
		n.log.Warn("the clock is believed again", "goes_on_by", by.Round(time.Millisecond))
	}
	n.doubt = nil
	return true
}

// doubtJump begins a doubt. before is how the clock stood to the others until now.
func (n *Node) doubtJump(jump time.Duration, before standing) {
	d := &doubt{jump: jump, patience: disputedFor, since: math.MaxInt64}
	switch {
	case n.doubt != nil:
		d.patience = n.doubt.patience // what was before the first jump counts
	case before.agreement == undisputed && before.peers >= n.enoughClocks():
		d.patience = disputedByStep
	}
	n.doubt = d
}

// enoughClocks is how many peers' clocks have to be measured to tell whether this node's is right: those of most that are heard.
func (n *Node) enoughClocks() int {
	peers, silent := n.host.Peers()
	return (peers-silent)/2 + 1
}

// clockConfirmed says whether a doubt is over.
func (n *Node) clockConfirmed() bool {
	peers, silent := n.host.Peers()
	now := n.now()
	stands := n.skew.standing(now)
	settled := n.doubt.settled(stands.agreement, now)
	switch {
	case peers == 0:
		return true // there is nobody to ask, and nobody to disagree with
	case peers > silent && stands.peers >= n.enoughClocks() && settled:
		n.skew.believe()
		return true
	}
	if n.doubt.jump != 0 || now < n.doubt.until || n.skew.unhealthy.Load() {
		return false
	}
	// Too few are measured to confirm it. But those that are, one at least, must not say otherwise: the verdict on that is spoken after two looks, a second
	// apart, and with short ticks the time is up before. As long as there is none, clients may reach this node that nobody else does, and
	// would take its word for the time.
	return stands.peers > 0 && settled
}
