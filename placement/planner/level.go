package planner

import (
	"fmt"
	"math"
	"strings"

	"github.com/tidemarkdb/tidemark/placement/planner/words"
)

// Level is one level of the objective. A lower level never outweighs a higher one.
type Level uint8

const (
	// LevelLegal counts rules that are broken, and replicas on nodes that are being decommissioned.
	LevelLegal Level = iota
	// LevelQuorum counts voters that are missing, lost, damaged or too many, and changes that are
	// not finished.
	LevelQuorum
	// LevelZones counts pairs of replicas that share a zone, less the pairs that have to share one
	// because there are so few zones.
	LevelZones
	// LevelRegions counts pairs of replicas that share a region, in the same way.
	LevelRegions
	// LevelLeader is 2 if a node leads that must not lead, 1 if a node leads that is neither
	// preferred nor wanted while a better one could.
	LevelLeader
	// LevelGrowth is a number of its own for each kind of growth. For a split: the size or load of
	// the larger part, divided by the size or load at which a partition splits. For a merge: the
	// steps left until the two are merged. For a new tail: how far the node of its leader is above
	// its share of load.
	LevelGrowth
	// LevelRoom to LevelLeaders are how far the nodes of the operator are from their shares, beyond
	// what is tolerated: the sum of the squares of the differences, as parts of the share. At the
	// level that an operator is for, the difference beyond half of what is tolerated counts.
	LevelRoom
	LevelLoad
	LevelBytes
	LevelCount
	LevelLeaders

	// Levels is how many levels there are.
	Levels
)

// Dimension is an amount that is balanced between nodes, the most important first. Each node has a
// sum of each dimension, and a share that it should have of the whole.
type Dimension uint8

// Dimensions, each with its level from LevelLoad on.
const (
	ByLoad Dimension = iota
	ByBytes
	ByCount
	ByLeaders

	// Dimensions is how many dimensions there are.
	Dimensions
)

// Level returns the level of a dimension.
func (d Dimension) Level() Level { return LevelLoad + Level(d) }

// Dimension returns the dimension of a level from LevelLoad on.
func (l Level) Dimension() Dimension { return Dimension(l - LevelLoad) }

var levelNames = []string{"placement rules", "quorum", "zones", "regions", "leader", "growth",
	"room on disk", "load", "bytes", "number of replicas", "number of leaders"}

func (l Level) String() string { return words.Name(levelNames, int(l)) }

// MarshalText writes the name, for JSON.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Score is the value of the objective for one partition and the nodes that an operator changes, by
// Level; less is better. Scores of different operators cannot be compared.
type Score [Levels]float64

// rounding is a difference that may come of the order of additions alone.
const rounding = 1e-9

// Compare compares two scores level by level: negative if s is better, positive if t is.
func (s Score) Compare(t Score) int {
	_, c := s.Decide(t)
	return c
}

// Decide compares like Compare, and returns the level that decided; Levels if none did.
func (s Score) Decide(t Score) (Level, int) {
	for l := range Levels {
		if d := s[l] - t[l]; d < -rounding {
			return l, -1
		} else if d > rounding {
			return l, 1
		}
	}
	return Levels, 0
}

// String writes the levels that are not 0, by name.
func (s Score) String() string {
	var parts []string
	for l := range Levels {
		if math.Abs(s[l]) > rounding {
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
	for l := range Levels {
		fmt.Fprintf(&b, ",%q:%g", l, s[l])
	}
	return []byte("{" + b.String()[1:] + "}"), nil
}
