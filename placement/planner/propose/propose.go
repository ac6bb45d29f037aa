package propose

import (
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/objective"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
)

// Proposer proposes operators. It owns what its steps have found out and not acted on yet: the
// partitions that wait for their turn, and those about which nothing can be done.
type Proposer struct {
	state     *state.State
	objective *objective.Objective

	// marks holds what was found out about each partition, by index.
	marks []mark
	// waiting holds the partitions with something wrong that have no operator.
	waiting queues
	// stuck lists the partitions about which nothing can be done until a node or keyspace changes.
	stuck []uint32
	// barren is when a search for moves last found none, by level of balance.
	barren [planner.Levels]time.Time

	// What a step has done, for its limits: searches for a place, looks at partitions that wait,
	// scans of a node at one level, and pairs of a partition and a node that were judged for balance.
	searches, visits, scans, probes int
	// full holds the surroundings for which a search of this step found no free place.
	full map[surroundings]bool
	// standings is space for sorting nodes, by index.
	standings []float64
}

// New returns a Proposer for a State and the Objective over it.
func New(s *state.State, o *objective.Objective) *Proposer {
	return &Proposer{state: s, objective: o, waiting: queues{state: s},
		full: map[surroundings]bool{}}
}
