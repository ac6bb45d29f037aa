package assign

import (
	"fmt"
	"strings"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/rules"
	"github.com/tidemarkdb/tidemark/placement/planner/words"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Spec says what to place: the partitions of one keyspace that have no replicas yet.
type Spec struct {
	Keyspace keys.KeyspaceID
	// Partitions is how many partitions to place.
	Partitions int
	// Replicas is how many replicas each partition has.
	Replicas int
	// Rules and Leaders are those of planner.Keyspace.
	Rules   rules.Rules
	Leaders rules.Selectors
}

// Placed is a partition of any keyspace that has its replicas already.
type Placed struct {
	Keyspace keys.KeyspaceID
	// Nodes holds the nodes of its replicas, the preferred leader first.
	Nodes []keys.NodeID
}

// Plan says where the replicas of the partitions go.
type Plan struct {
	// Placements holds a placement for each partition of the Spec. It is nil if WaitsFor is set.
	Placements []Placement
	// WaitsFor says in words what has to happen before anything can be placed, as in "2 more nodes
	// (has 1 alive, needs 3)"; empty: nothing.
	WaitsFor string
}

// Placement says where the replicas of one partition go, and why.
type Placement struct {
	// Nodes holds a node for each replica, the preferred leader first.
	Nodes []keys.NodeID
	// Reason says why these nodes.
	Reason Spread
}

// Spread says how well a placement is spread, and how even the leaders are.
type Spread struct {
	// Replicas is how many replicas the partition has, Zones and Regions over how many zones and
	// regions they are spread.
	Replicas, Zones, Regions int
	// OfZones and OfRegions is how many zones and regions have nodes that are alive.
	OfZones, OfRegions int
	// Leads is how many partitions of the keyspace the preferred leader leads, this one included.
	Leads int
	// LeadsLeast is how many partitions of the keyspace that node leads that leads the fewest.
	LeadsLeast int
}

// String says the same in a sentence.
func (r Spread) String() string {
	return fmt.Sprintf("%d replicas in %d of %d zones and %d of %d regions; the preferred leader "+
		"leads %d partitions of the keyspace, no node fewer than %d",
		r.Replicas, r.Zones, r.OfZones, r.Regions, r.OfRegions, r.Leads, r.LeadsLeast)
}

// Waits says in words what has to happen before anything can be placed; empty: nothing.
func (s Spec) Waits(nodes []planner.Node) string {
	alive := 0
	var masks []rules.Mask
	for i := range nodes {
		n := &nodes[i]
		if !n.Alive || n.Status != planner.Active {
			continue
		}
		alive++
		if mask := s.Rules.Mask(n.Labels()); s.Rules.Allows(mask) {
			masks = append(masks, mask)
		}
	}
	if missing := s.Replicas - alive; missing > 0 {
		return fmt.Sprintf("%s (has %d alive, needs %d)", words.Plural(missing, "more node"), alive,
			s.Replicas)
	}
	if missing := s.Replicas - len(masks); missing > 0 {
		return fmt.Sprintf("%s%s (has %d alive, needs %d)", words.Plural(missing, "more node"),
			s.Rules.AllowedText(), len(masks), s.Replicas)
	}
	if names, wanted, has := s.Rules.Shortage(masks); wanted > 0 {
		return fmt.Sprintf("%s matching %s (has %d alive, needs %d)",
			words.Plural(wanted-has, "more node"), names, has, wanted)
	}
	return ""
}

// Place places the partitions of the Spec on the nodes that are alive, given where everything else
// is.
func Place(nodes []planner.Node, spec Spec, placed []Placed) (Plan, error) {
	if spec.Replicas < 1 || spec.Partitions < 0 {
		return Plan{}, fmt.Errorf("cannot place %d partitions with %d replicas each",
			spec.Partitions, spec.Replicas)
	}
	if err := spec.Rules.Validate(spec.Replicas); err != nil {
		return Plan{}, err
	}
	if waits := spec.Waits(nodes); waits != "" {
		return Plan{WaitsFor: waits}, nil
	}
	t, err := newTopology(nodes, spec)
	if err != nil {
		return Plan{}, err
	}
	t.count(spec.Keyspace, placed)
	sets := make([][]*node, spec.Partitions)
	for i := range sets {
		sets[i] = t.choose(spec.Replicas)
		chooseLeader(sets[i])
	}
	t.evenLeaders(sets)
	return t.plan(sets), nil
}

// Summary says in a line what a plan does.
func (p Plan) Summary() string {
	if p.WaitsFor != "" {
		return "waits for " + p.WaitsFor
	}
	seen := map[string]int{}
	var order []string
	for _, placement := range p.Placements {
		r := placement.Reason
		text := fmt.Sprintf("%d replicas in %d of %d zones", r.Replicas, r.Zones, r.OfZones)
		if seen[text] == 0 {
			order = append(order, text)
		}
		seen[text]++
	}
	for i, text := range order {
		order[i] = fmt.Sprintf("%d partitions with %s", seen[text], text)
	}
	return strings.Join(order, ", ")
}
