package node

import (
	"fmt"
	"math"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// measureFor is for how many election timeouts after its start a node waits at most for measurements of more clocks than one.
const measureFor = 3

// disputedFor is how long a node in doubt waits before it goes on with a clock that is disputed: longer than those that are behind it need to notice that they
// are, which is a few pings and skewChecks.
const disputedFor = 5 * healthPeriod

// doubt is why this node does not know whether its clock is right. Of the health goroutine, once that runs.
type doubt struct {
	// jump is by how much the clock jumped last; zero if this is about the start.
	jump time.Duration
	// until is when one peer is enough to end the doubt of a start, of Node.now.
	until int64
	// disputed is when a clock that is disputed ends the doubt too. Never, if the jump was what made it that: then others are right, for all that is known.
	disputed int64
}

// needs is how the clock has to go with those of the peers.
func (d *doubt) needs(now int64) agreement {
	if now < d.disputed {
		return undisputed
	}
	return disputed
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
		n.doubt = &doubt{until: now + measureFor*int64(n.config.electionTimeout()), disputed: now + int64(disputedFor)}
	}
}

// lookAtClock notices jumps of the clock, and the end of doubts. It says whether something has changed. Until a doubt is over this node
// goes by the time before the jump, so nobody ever sees another one; it serves nothing all the same, since a clock that seems to have
// jumped forward may have been right, and the machine have stood still.
func (n *Node) lookAtClock() (changed bool) {
	steady := n.config.Clock.Steady()
	if steady != nil {
		if jump, jumped, before := n.skew.look(steady, n.now()); jumped {
			changed = true
			n.metrics.clockJumps.Inc()
			n.host.DistrustLeases()
			n.doubtJump(jump, before)
			n.log.Error("THE CLOCK OF THIS SERVER HAS JUMPED: nothing is served until the clocks of its peers confirm it", "by", jump.Round(time.Millisecond))
		}
	}
	if n.doubt == nil || !n.clockConfirmed() {
		return changed
	}
	if n.doubt.jump != 0 {
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

// doubtJump begins a doubt. before is how the clock went with the others until now.
func (n *Node) doubtJump(jump time.Duration, before agreement) {
	d := &doubt{jump: jump, disputed: math.MaxInt64}
	switch {
	case n.doubt != nil && n.doubt.jump != 0:
		d.disputed = n.doubt.disputed // what went before the first jump counts
	case before != undisputed:
		d.disputed = n.now() + int64(disputedFor)
	}
	n.doubt = d
}

// clockConfirmed says whether a doubt is over.
func (n *Node) clockConfirmed() bool {
	peers, silent := n.host.Peers()
	needs := n.doubt.needs(n.now())
	switch {
	case peers == 0:
		return true // there is nobody to ask, and nobody to disagree with
	case peers > silent && n.skew.confirmed(n.now(), (peers-silent)/2+1, needs):
		return true
	}
	if n.doubt.jump != 0 || n.now() < n.doubt.until || n.skew.unhealthy.Load() {
		return false
	}
	// Too few are measured to confirm it. But those that are, one at least, must not say otherwise: the verdict on that is spoken after two looks, a second
	// apart, and with short ticks the time is up before. As long as there is none, clients may reach this node that nobody else does, and
	// would take its word for the time.
	s := n.skew.standing(n.now())
	return s.peers > 0 && s.agreement >= needs
}
