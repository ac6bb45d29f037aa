package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
	"github.com/tidemarkdb/tidemark/placement/planner/words"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Node says what is on a node, and why.
type Node struct {
	Node   keys.NodeID
	Status planner.Status
	// NodeIs says in words how the node is.
	NodeIs            string
	Replicas, Leaders int
	// Bytes and Load are those of the replicas, with operators in flight counted as done. Reported is
	// the load that the node reports.
	Bytes          int64
	Load, Reported planner.Cores
	// Full is the part of the disk that is used, 0 if its capacity is not known.
	Full float64
	// Of says how far the node is from its share in each dimension.
	Of []Standing
	// LeadersLeft and ReplicasLeft count what still has to go from a node that is drained or
	// decommissioned.
	LeadersLeft, ReplicasLeft int
	// InTheWay says in words what keeps the first partition that cannot go.
	InTheWay string `json:",omitempty"`
	// Balance says what is done for balance, or why nothing is.
	Balance string
}

// Standing says how far a node is from its share in one dimension.
type Standing struct {
	Level planner.Level
	// Deviation is how far the node is from its share, Tolerated how far it may be, as parts of the
	// share.
	Deviation, Tolerated float64
	// Most is the amount up to which is tolerated, in words.
	Most string
}

// tolerated says how far a node may be from its share. If the share is small against what is worth
// a move, it says up to which amount everything is tolerated.
func (o *Standing) tolerated() string {
	if o.Tolerated >= 1 {
		return "anything up to " + o.Most + " is tolerated"
	}
	return fmt.Sprintf("%.0f %% more or less is tolerated", 100*o.Tolerated)
}

// amountText writes an amount of a dimension.
func amountText(d planner.Dimension, amount float64) string {
	switch d {
	case planner.ByLoad:
		return planner.Cores(amount).String()
	case planner.ByBytes:
		return words.Size(int64(amount))
	case planner.ByCount:
		return words.Plural(int(amount), "replica")
	}
	return words.Plural(int(amount), "leader")
}

// Node explains a node.
func (e *Explainer) Node(id keys.NodeID) (*Node, error) {
	i := e.state.NodeIndex(id)
	if i == state.NoNode || !e.state.Nodes[i].Known {
		return nil, fmt.Errorf("there is no node %s", id)
	}
	n := &e.state.Nodes[i]
	out := &Node{Node: id, Status: n.Told.Status, NodeIs: e.nodeText(i),
		Replicas: int(n.Sum[planner.ByCount]), Leaders: int(n.Sum[planner.ByLeaders]),
		Bytes: n.Sum[planner.ByBytes], Load: planner.Cores(n.Sum[planner.ByLoad]),
		Reported: n.Told.Load, Full: e.state.Fullness(i, 0)}
	if n.Condition.Is(state.Open) {
		for d := range planner.Dimensions {
			if share := e.objective.Share(d, i); share > 0 {
				band := e.objective.Band(d, share)
				out.Of = append(out.Of, Standing{Level: d.Level(), Tolerated: band / share,
					Deviation: e.objective.Deviation(d, i, 0), Most: amountText(d, share+band)})
			}
		}
	}
	e.whatIsLeft(i, out)
	if out.Balance = e.balanceText(i); e.state.Settings().Paused {
		out.Balance += "; " + PausedText
	}
	return out, nil
}

// whatIsLeft counts what still has to go from a node, and finds the first thing that is in the way.
func (e *Explainer) whatIsLeft(i uint16, out *Node) {
	n := &e.state.Nodes[i]
	if n.Condition&(state.Leaving|state.Drained|state.Lost) == 0 {
		return
	}
	list := slices.Clone(n.Partitions)
	slices.SortFunc(list, func(a, b uint32) int {
		return cmp.Compare(e.state.Partitions[a].ID, e.state.Partitions[b].ID)
	})
	for _, at := range list {
		p := &e.state.Partitions[at]
		if p.Leader == i {
			out.LeadersLeft++
		}
		goes := n.Condition&(state.Leaving|state.Lost) != 0
		if goes {
			out.ReplicasLeft++
		}
		if out.InTheWay != "" || !goes && p.Leader != i || p.InFlight {
			continue
		}
		if e.state.Settings().Paused {
			out.InTheWay = PausedText
		} else if text, next := e.verdict(at); next == nil {
			out.InTheWay = fmt.Sprintf("%s: %s", p.ID, text)
		}
	}
}

// balanceText says what would be moved away from a node, or why nothing is.
func (e *Explainer) balanceText(i uint16) string {
	if n := &e.state.Nodes[i]; !n.Condition.Is(state.Open) {
		if n.Condition == state.Live {
			return fmt.Sprintf("it has answered for %s, and is given replicas and leaders after %s",
				max(0, e.state.Now().Sub(n.Told.Since)).Round(time.Second), e.state.Settings().Settle)
		}
		return "it takes no part in balance"
	}
	for l := planner.LevelRoom; l < planner.Levels; l++ {
		outside := e.objective.OutsideAt(l, i, 0)
		if outside == 0 {
			continue
		}
		text := fmt.Sprintf("%s at %s of its share", l, words.Percent(e.objective.Standing(l, i)))
		if l == planner.LevelRoom {
			text = fmt.Sprintf("its disk is %.0f %% full", 100*e.state.Fullness(i, 0))
		}
		if outside < 0 {
			return text + ": it is given more, as far as rules, spread and limits allow"
		}
		if op := e.proposer.BestMove(l, i); op != nil {
			return text + "; to be done: " + op.String()
		}
		return text + "; " + e.whyNoMove(i)
	}
	return "within what is tolerated, nothing is moved"
}

// whyNoMove says why nothing is moved away from a node that is above its band.
func (e *Explainer) whyNoMove(i uint16) string {
	inFlight, resting, unfit := 0, 0, 0
	for _, at := range e.state.Nodes[i].Partitions {
		switch p := &e.state.Partitions[at]; {
		case p.InFlight:
			inFlight++
		case e.state.Resting(p):
			resting++
		case !e.proposer.IsFit(at):
			unfit++
		}
	}
	return fmt.Sprintf("of its %d partitions %d have an operator in flight, %d rest after one, %d "+
		"are incomplete; moving any other gains too little or is refused by rules, spread, room "+
		"or limits", len(e.state.Nodes[i].Partitions), inFlight, resting, unfit)
}

// String says the same on several lines.
func (w *Node) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s): %s, %s, %s, %s\n", w.Node, w.NodeIs,
		words.Plural(w.Replicas, "replica"), words.Plural(w.Leaders, "leader"), words.Size(w.Bytes),
		w.Load)
	for _, o := range w.Of {
		fmt.Fprintf(&b, "  %s: %s of its share, %s\n", o.Level, words.Percent(o.Deviation),
			o.tolerated())
	}
	if w.LeadersLeft+w.ReplicasLeft > 0 {
		fmt.Fprintf(&b, "  left: %s, %s\n", words.Plural(w.ReplicasLeft, "replica"),
			words.Plural(w.LeadersLeft, "leader"))
	}
	if w.InTheWay != "" {
		fmt.Fprintf(&b, "  in the way: %s\n", w.InTheWay)
	}
	fmt.Fprintf(&b, "  balance: %s\n", w.Balance)
	return b.String()
}
