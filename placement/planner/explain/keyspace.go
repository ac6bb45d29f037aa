package explain

import (
	"fmt"
	"strings"

	"github.com/tidemarkdb/tidemark/placement/planner/objective"
	"github.com/tidemarkdb/tidemark/placement/planner/rules"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
	"github.com/tidemarkdb/tidemark/placement/planner/words"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Keyspace says how far a keyspace is from what it wants.
type Keyspace struct {
	Keyspace keys.KeyspaceID
	Name     string
	Replicas int
	Rules    []Rule          `json:",omitempty"`
	Leaders  rules.Selectors `json:",omitempty"`
	// Paused: placement is paused, so nothing is begun for the keyspace.
	Paused bool `json:",omitempty"`
	Counts
	// Lacks says what the keyspace wants and the open nodes cannot give.
	Lacks []Obstacle `json:",omitempty"`
}

// Counts counts partitions by what is wrong with them. A partition may count for several.
type Counts struct {
	Partitions int
	// NoQuorum counts partitions with too few voters that answer.
	NoQuorum int
	// TooFew, TooMany and Under count partitions with fewer or more voters than wanted, and with
	// fewer good voters than wanted.
	TooFew, TooMany, Under int
	// Bad counts partitions with a lost or damaged voter, Leaving those with a voter on a node that
	// is being decommissioned.
	Bad, Leaving int
	// Breaking counts partitions that break a placement rule, Sharing those that share zones or
	// regions more than rules and nodes require.
	Breaking, Sharing int
	// Misled counts partitions with a leader in the wrong place.
	Misled int
	// InFlight counts partitions with an operator in flight.
	InFlight int
	// Splitting counts partitions that are to be split, Indivisible those that would be if a split
	// helped, Merging those that are to be merged with their right neighbours.
	Splitting, Indivisible, Merging int
}

// Counts counts the partitions of all known keyspaces. It takes as long as a check of every
// partition.
func (e *Explainer) Counts() Counts {
	var c Counts
	for i := range e.state.Partitions {
		if p := &e.state.Partitions[i]; p.ID != 0 && e.state.Keyspaces[p.Keyspace].Known {
			e.count(&c, uint32(i))
			if w := e.objective.Split(uint32(i)); w.At != nil {
				c.Splitting++
			} else if w.Needed && w.Why != objective.SplitByRequest &&
				w.Why != objective.SplitKeyUnknown {
				c.Indivisible++
			}
			if j, _ := e.objective.MergesWith(uint32(i)); j != state.NoPartition {
				c.Merging++
			}
		}
	}
	return c
}

// Rule is a placement rule, and how many nodes can satisfy it.
type Rule struct {
	Rule string
	// Open is how many open nodes match the rule, Matching how many nodes do.
	Open, Matching int
}

// Keyspace explains a keyspace. It looks at each of its partitions.
func (e *Explainer) Keyspace(id keys.KeyspaceID) (*Keyspace, error) {
	at, ok := e.state.KeyspaceIndex(id)
	if !ok || !e.state.Keyspaces[at].Known {
		return nil, fmt.Errorf("there is no keyspace %s", id)
	}
	ks := &e.state.Keyspaces[at]
	out := &Keyspace{Keyspace: id, Name: ks.Wants.Name, Replicas: ks.Wants.Replicas,
		Leaders: ks.Wants.Leaders, Paused: e.state.Settings().Paused}
	var open []uint16
	for n := range e.state.Nodes {
		if e.state.Nodes[n].Condition.Is(state.Open) {
			open = append(open, uint16(n))
		}
	}
	for i, rule := range ks.Wants.Rules {
		why := Rule{Rule: rule.String()}
		for n := range e.state.Nodes {
			if e.state.Nodes[n].Known && ks.Masks[n]&(1<<i) != 0 {
				why.Matching++
				if e.state.Nodes[n].Condition.Is(state.Open) {
					why.Open++
				}
			}
		}
		out.Rules = append(out.Rules, why)
	}
	out.Lacks = e.lacking(ks, open, "can have one now")
	for i := range e.state.Partitions {
		if p := &e.state.Partitions[i]; p.ID != 0 && p.Keyspace == at {
			e.count(&out.Counts, uint32(i))
		}
	}
	return out, nil
}

// count counts a partition for all but growth.
func (e *Explainer) count(to *Counts, i uint32) {
	p := &e.state.Partitions[i]
	x, factor := e.objective.Inspect(p), e.state.Keyspaces[p.Keyspace].Wants.Replicas
	for _, c := range []struct {
		is bool
		n  *int
	}{
		{true, &to.Partitions}, {!x.Quorum, &to.NoQuorum}, {x.Voters < factor, &to.TooFew},
		{x.Voters > factor, &to.TooMany}, {x.Good < factor, &to.Under},
		{x.Good < x.Voters, &to.Bad}, {x.Leaving > 0, &to.Leaving},
		{x.Violations > 0, &to.Breaking},
		{e.objective.CouldSpread(&x) && !e.proposer.IsStuck(i), &to.Sharing},
		{e.objective.PresentLeaderCost(p, p.Leader) > 0, &to.Misled},
		{p.InFlight, &to.InFlight},
	} {
		if c.is {
			*c.n++
		}
	}
}

// String says the same on several lines.
func (w *Keyspace) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "keyspace %s (%s): %s, %d replicas each\n", w.Name, w.Keyspace,
		words.Plural(w.Partitions, "partition"), w.Replicas)
	for _, r := range w.Rules {
		fmt.Fprintf(&b, "  placement %s: %d of %d nodes that match are open\n", r.Rule, r.Open,
			r.Matching)
	}
	if len(w.Leaders) > 0 {
		fmt.Fprintf(&b, "  leaders preferred on %s\n", w.Leaders)
	}
	for _, c := range []struct {
		n    int
		text string
	}{
		{w.NoQuorum, "without a quorum"}, {w.Bad, "with a lost or damaged replica"},
		{w.TooFew, "with too few replicas"}, {w.TooMany, "with too many replicas"},
		{w.Leaving, "with a replica on a node that is being decommissioned"},
		{w.Breaking, "that break the placement"},
		{w.Sharing, "that share a zone or region more than has to be"},
		{w.Misled, "with a leader in the wrong place"}, {w.InFlight, "with an operator in flight"},
	} {
		if c.n > 0 {
			fmt.Fprintf(&b, "  %s %s\n", words.Plural(c.n, "partition"), c.text)
		}
	}
	for _, o := range w.Lacks {
		fmt.Fprintf(&b, "  %s\n", o)
	}
	if w.Paused {
		fmt.Fprintf(&b, "  %s\n", PausedText)
	}
	return b.String()
}
