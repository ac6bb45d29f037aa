package planner

import (
	"fmt"
	"strings"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// KeyspaceWhy is how far a keyspace is from what it wants.
type KeyspaceWhy struct {
	Keyspace keys.KeyspaceID
	Name     string
	Replicas int
	Rules    []RuleWhy `json:",omitempty"`
	Leaders  Selectors `json:",omitempty"`
	// Paused: nothing is begun for it, whatever it lacks.
	Paused bool `json:",omitempty"`
	Counts
	// Lacks says what the open nodes cannot give, in words.
	Lacks []Obstacle `json:",omitempty"`
}

// Counts are of partitions, and of those of which something is to be said.
type Counts struct {
	// Partitions is how many there are; of these, NoQuorum have too few voters that answer, TooFew
	// and TooMany as many replicas as that, Under fewer sound ones than wanted,
	// Bad a lost or damaged one, Leaving one on a node that is being decommissioned, Breaking a rule
	// that is not met, Sharing more in one zone or region than rules and nodes allow, Misled a leader
	// in the wrong place, and InFlight an operator. Splitting are to be split, Indivisible would be
	// if that helped, and Merging are to consume their right neighbours.
	Partitions, NoQuorum, TooFew, TooMany, Under, Bad, Leaving, Breaking, Sharing, Misled,
	InFlight, Splitting, Indivisible, Merging int
}

// Counts looks at each partition of the keyspaces that are known, as of the last step. It takes as
// long as a full pass.
func (s *State) Counts() Counts {
	var c Counts
	for i := range s.partitions {
		if p := &s.partitions[i]; p.id != 0 && s.keyspaces[p.keyspace].known {
			c.count(s, uint32(i))
			if w := s.splittingOf(uint32(i)); w.at != nil {
				c.Splitting++
			} else if w.needed && w.why != hindOff && w.why != hindNoKey {
				c.Indivisible++
			}
			if j, _ := s.mergesWith(uint32(i)); j != none32 {
				c.Merging++
			}
		}
	}
	return c
}

// RuleWhy is one rule, and the nodes that can satisfy it.
type RuleWhy struct {
	Rule string
	// Open is how many open nodes match, Matching how many in all.
	Open, Matching int
}

// WhyKeyspace explains a keyspace as of the last step. It looks at each of its partitions.
func (s *State) WhyKeyspace(id keys.KeyspaceID) (*KeyspaceWhy, error) {
	at, ok := s.keyspaceIndex[id]
	if !ok || !s.keyspaces[at].known {
		return nil, fmt.Errorf("there is no keyspace %s", id)
	}
	ks := &s.keyspaces[at]
	out := &KeyspaceWhy{Keyspace: id, Name: ks.info.Name, Replicas: ks.info.Replicas,
		Leaders: ks.info.Leaders, Paused: s.settings.Paused}
	var left []uint16
	for n := range s.nodes {
		if s.nodes[n].cond.is(open) {
			left = append(left, uint16(n))
		}
	}
	for i, rule := range ks.info.Rules {
		why := RuleWhy{Rule: rule.String()}
		for n := range s.nodes {
			if s.nodes[n].known && ks.masks[n]&(1<<i) != 0 {
				why.Matching++
				if s.nodes[n].cond.is(open) {
					why.Open++
				}
			}
		}
		out.Rules = append(out.Rules, why)
	}
	out.Lacks = s.lacking(ks, left, "can have one now")
	for i := range s.partitions {
		if p := &s.partitions[i]; p.id != 0 && p.keyspace == at {
			out.Counts.count(s, uint32(i))
		}
	}
	return out, nil
}

func (w *Counts) count(s *State, i uint32) {
	p := &s.partitions[i]
	x, factor := s.inspect(p), s.keyspaces[p.keyspace].info.Replicas
	for _, c := range []struct {
		is bool
		n  *int
	}{
		{true, &w.Partitions}, {!x.quorum, &w.NoQuorum}, {x.voters < factor, &w.TooFew},
		{x.voters > factor, &w.TooMany}, {x.good < factor, &w.Under}, {x.good < x.voters, &w.Bad},
		{x.leaving > 0, &w.Leaving}, {x.violations > 0, &w.Breaking},
		{s.hasSpareSpread(&x) && !s.isStuck(i), &w.Sharing},
		{s.misled(p, p.leader) > 0, &w.Misled}, {p.flying, &w.InFlight},
	} {
		if c.is {
			*c.n++
		}
	}
}

// String is on several lines.
func (w *KeyspaceWhy) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "keyspace %s (%s): %s, %d replicas each\n", w.Name, w.Keyspace,
		plural(w.Partitions, "partition"), w.Replicas)
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
			fmt.Fprintf(&b, "  %s %s\n", plural(c.n, "partition"), c.text)
		}
	}
	for _, o := range w.Lacks {
		fmt.Fprintf(&b, "  %s\n", o)
	}
	if w.Paused {
		fmt.Fprintf(&b, "  %s\n", pausedText)
	}
	return b.String()
}
