package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// NodeWhy is what the planner knows of what is on a node, and why.
type NodeWhy struct {
	Node   keys.NodeID
	Status Status
	// NodeIs says how it is, in words.
	NodeIs            string
	Replicas, Leaders int
	// Bytes and Load are what its replicas account for, with what is in flight counted as done;
	// Reported is the load that the node reports.
	Bytes          int64
	Load, Reported Cores
	// Full is the part of the disk that is used, 0 if its capacity is not known.
	Full float64
	// Of is how far it is from its share, of all that is balanced.
	Of []Standing
	// LeadersLeft and ReplicasLeft are what has to go while it is drained or decommissioned.
	LeadersLeft, ReplicasLeft int
	// InTheWay is the first thing that keeps one of them, in words.
	InTheWay string `json:",omitempty"`
	// Balance says what is done for balance, and why nothing is.
	Balance string
}

// Standing is where a node stands in something that is balanced.
type Standing struct {
	Level Level
	// Deviation is how far it is from its share, as a part of it; Tolerated how far it may be.
	Deviation, Tolerated float64
	// Most is up to how much the node may have, in words.
	Most string
}

// tolerated says how far a node may be from its share. A share that is small against what is worth
// moving is not told as a part of it: everything up to an amount is tolerated then.
func (o *Standing) tolerated() string {
	if o.Tolerated >= 1 {
		return "anything up to " + o.Most + " is tolerated"
	}
	return fmt.Sprintf("%.0f %% more or less is tolerated", 100*o.Tolerated)
}

// amountText is an amount of what is balanced, in words.
func amountText(d dimension, amount float64) string {
	switch d {
	case byLoad:
		return Cores(amount).String()
	case byBytes:
		return size(int64(amount))
	case byCount:
		return plural(int(amount), "replica")
	}
	return plural(int(amount), "leader")
}

// WhyNode explains a node as of the last step.
func (s *State) WhyNode(id keys.NodeID) (*NodeWhy, error) {
	i := s.indexOf(id)
	if i == noNode || !s.nodes[i].known {
		return nil, fmt.Errorf("there is no node %s", id)
	}
	n := &s.nodes[i]
	out := &NodeWhy{Node: id, Status: n.info.Status, NodeIs: s.nodeText(i),
		Replicas: int(n.sum[byCount]), Leaders: int(n.sum[byLeaders]), Bytes: n.sum[byBytes],
		Load: Cores(n.sum[byLoad]), Reported: n.info.Load, Full: s.fullness(i, 0)}
	if n.cond.is(open) {
		for d := range dimensions {
			if share := s.share(d, i); share > 0 {
				band := s.band(d, share)
				out.Of = append(out.Of, Standing{Level: d.level(), Deviation: s.deviation(d, i, 0),
					Tolerated: band / share, Most: amountText(d, share+band)})
			}
		}
	}
	s.whatIsLeft(i, out)
	if out.Balance = s.balanceText(i); s.settings.Paused {
		out.Balance += "; " + pausedText
	}
	return out, nil
}

// whatIsLeft counts what a node still has that is to go, and finds the first thing in its way.
func (s *State) whatIsLeft(i uint16, out *NodeWhy) {
	n := &s.nodes[i]
	if n.cond&(leaving|drained|lost) == 0 {
		return
	}
	list := slices.Clone(n.list)
	slices.SortFunc(list, func(a, b uint32) int {
		return cmp.Compare(s.partitions[a].id, s.partitions[b].id)
	})
	for _, at := range list {
		p := &s.partitions[at]
		if p.leader == i {
			out.LeadersLeft++
		}
		goes := n.cond&(leaving|lost) != 0
		if goes {
			out.ReplicasLeft++
		}
		if out.InTheWay != "" || !goes && p.leader != i || p.flying {
			continue
		}
		if s.settings.Paused {
			out.InTheWay = pausedText
		} else if text, next := s.verdict(at); next == nil {
			out.InTheWay = fmt.Sprintf("%s: %s", p.id, text)
		}
	}
}

// pausedText is why nothing is begun while placement is paused.
const pausedText = "placement is paused, so nothing is begun: `tidemark placement resume` goes on"

// balanceText says what would be moved away from a node, or why nothing is.
func (s *State) balanceText(i uint16) string {
	if n := &s.nodes[i]; !n.cond.is(open) {
		if n.cond == live {
			return fmt.Sprintf("it has answered for %s, and is given replicas and leaders after %s",
				max(0, s.now.Sub(n.info.Since)).Round(time.Second), s.settings.Settle)
		}
		return "it takes no part in balance"
	}
	for l := LevelRoom; l < levels; l++ {
		e := s.strays(l, i, 0)
		if e == 0 {
			continue
		}
		text := fmt.Sprintf("%s at %s of its share", l, percent(s.standing(l, i)))
		if l == LevelRoom {
			text = fmt.Sprintf("its disk is %.0f %% full", 100*s.fullness(i, 0))
		}
		if e < 0 {
			return text + ": it is given more, as far as rules, spread and limits allow"
		}
		if op := s.bestMove(l, i); op != nil {
			return text + "; to be done: " + op.String()
		}
		return text + "; " + s.whyNoMove(i)
	}
	return "within what is tolerated, nothing is moved"
}

func (s *State) whyNoMove(i uint16) string {
	flying, resting, unfit := 0, 0, 0
	for _, at := range s.nodes[i].list {
		switch p := &s.partitions[at]; {
		case p.flying:
			flying++
		case s.paused(p):
			resting++
		case !s.isFit(at):
			unfit++
		}
	}
	return fmt.Sprintf("of its %d partitions %d have an operator in flight, %d rest after one, %d "+
		"are incomplete; moving any other gains too little or is refused by rules, spread, room "+
		"or limits", len(s.nodes[i].list), flying, resting, unfit)
}

// String is on several lines.
func (w *NodeWhy) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s): %s, %s, %s, %s\n", w.Node, w.NodeIs, plural(w.Replicas, "replica"),
		plural(w.Leaders, "leader"), size(w.Bytes), w.Load)
	for _, o := range w.Of {
		fmt.Fprintf(&b, "  %s: %s of its share, %s\n", o.Level, percent(o.Deviation), o.tolerated())
	}
	if w.LeadersLeft+w.ReplicasLeft > 0 {
		fmt.Fprintf(&b, "  left: %s, %s\n", plural(w.ReplicasLeft, "replica"),
			plural(w.LeadersLeft, "leader"))
	}
	if w.InTheWay != "" {
		fmt.Fprintf(&b, "  in the way: %s\n", w.InTheWay)
	}
	fmt.Fprintf(&b, "  balance: %s\n", w.Balance)
	return b.String()
}
