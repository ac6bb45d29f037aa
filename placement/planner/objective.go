package planner

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Level is one level of the objective. A lower level never outweighs a higher one.
type Level uint8

const (
	// LevelLegal counts rules that are broken, and replicas on nodes that are being decommissioned.
	LevelLegal Level = iota
	// LevelQuorum counts voters that are missing, lost, damaged or too many, and changes that are
	// not finished.
	LevelQuorum
	// LevelZones counts pairs of replicas that share a zone, beyond those that have to where there
	// are so few zones.
	LevelZones
	// LevelRegions counts pairs of replicas that share a region, in the same way.
	LevelRegions
	// LevelLeader is 2 if the leader is where none should be, 1 if it is elsewhere than preferred
	// or wanted.
	LevelLeader
	// LevelGrowth is, of what splits, the size or load of the larger part by what it splits at; of
	// what merges, the steps that are left until it is merged; of a new end, how much above its
	// share of load its leader's node is.
	LevelGrowth
	// LevelRoom to LevelLeaders are how far the nodes in question are from their share, beyond what
	// is tolerated: the sum of the squares of the differences, as parts of the share. At the level
	// that an operator is for, it is beyond half of what is tolerated.
	LevelRoom
	LevelLoad
	LevelBytes
	LevelCount
	LevelLeaders

	levels
)

var levelNames = []string{"placement rules", "quorum", "zones", "regions", "leader", "growth",
	"room on disk", "load", "bytes", "number of replicas", "number of leaders"}

func (l Level) String() string { return nameOf(levelNames, int(l)) }

// MarshalText is for JSON.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Score is the value of the objective for one partition and the nodes that an operator touches, by
// Level; less is better. Scores of different operators do not compare.
type Score [levels]float64

// Compare compares two scores, level by level.
func (s Score) Compare(t Score) int {
	_, c := s.decide(t)
	return c
}

// decide also says which level decided.
func (s Score) decide(t Score) (Level, int) {
	for l := range levels {
		// What is left of a difference of sums is not a difference.
		if d := s[l] - t[l]; d < -1e-9 {
			return l, -1
		} else if d > 1e-9 {
			return l, 1
		}
	}
	return levels, 0
}

// String names the levels that are not 0.
func (s Score) String() string {
	var parts []string
	for l := range levels {
		if math.Abs(s[l]) > 1e-9 {
			parts = append(parts, fmt.Sprintf("%s %.4g", l, s[l]))
		}
	}
	if parts == nil {
		return "0"
	}
	return strings.Join(parts, ", ")
}

// MarshalJSON writes the levels by name.
func (s Score) MarshalJSON() ([]byte, error) {
	var b strings.Builder
	for l := range levels {
		fmt.Fprintf(&b, ",%q:%g", l, s[l])
	}
	return []byte("{" + b.String()[1:] + "}"), nil
}

// score is the value of the objective for a partition as its descriptor has it, and for the nodes
// as the sums have them.
func (s *State) score(p *partition, focus Level, nodes []uint16) Score {
	return s.scoreAs(p, s.replicas(p), s.misled(p, p.leader), focus, nodes)
}

// scoreAs is the score of a partition as if it had other replicas, and a leader as wrong as that.
func (s *State) scoreAs(
	p *partition, replicas []replica, leader int, focus Level, nodes []uint16,
) Score {
	var sc Score
	x := s.inspectAs(p, replicas)
	sc[LevelLegal] = float64(x.violations + x.leaving)
	sc[LevelQuorum] = float64(x.unsafe)
	sc[LevelZones] = float64(max(0, x.spread.zones-leastPairs(x.good, s.openZones)))
	sc[LevelRegions] = float64(max(0, x.spread.regions-leastPairs(x.good, s.openRegions)))
	sc[LevelLeader] = float64(leader)
	s.scoreNodes(&sc, focus, nodes)
	return sc
}

// scoreNodes adds what is beyond the bands of the nodes: beyond half of it at the level that an
// operator is for, and beyond all of it at the others. So a move for a lower level can use what is
// tolerated at a higher one, and never goes beyond.
func (s *State) scoreNodes(sc *Score, focus Level, nodes []uint16) {
	for i, n := range nodes {
		if n == noNode || slices.Contains(nodes[:i], n) {
			continue
		}
		for l := LevelRoom; l < levels; l++ {
			sc[l] += s.penalty(l, n, 0, l == focus)
		}
	}
}

// disliked says how wrong it would be that a node leads a partition, if it were the one wanted.
func (s *State) disliked(p *partition, leader uint16) int {
	if leader == noNode {
		return 0
	}
	if s.nodes[leader].cond.is(drained) {
		return 2
	}
	if ks := &s.keyspaces[p.keyspace]; len(ks.preferred) > 0 && !ks.preferred[leader] {
		for _, r := range s.replicas(p) {
			if ks.preferred[r.node] && s.canLead(r) {
				return 1
			}
		}
	}
	return 0
}

// misled is the same for the node that leads now: it is also wrong that it is not the one wanted.
func (s *State) misled(p *partition, leader uint16) int {
	worst := s.disliked(p, leader)
	if leader != noNode && p.leads != leader && p.leads == p.wanted && p.leads != noNode &&
		s.disliked(p, p.leads) <= worst {
		worst = max(worst, 1)
	}
	return worst
}

// canLead says whether leadership can be given to a replica, and would stay there.
func (s *State) canLead(r replica) bool { return s.mayLead(r) && !s.averse(r.node) }

// mayLead says whether leadership can be given to a replica if no other can take it. A node whose
// disk is slow serves all the same.
func (s *State) mayLead(r replica) bool {
	n := &s.nodes[r.node]
	return r.role == Voter && r.damage == Sound && n.cond.is(open) && !n.info.DiskFull &&
		!n.info.ClockWrong
}

// averse says whether a node leaves leadership to others at present.
func (s *State) averse(n uint16) bool { return s.nodes[n].info.averse() != "" }
