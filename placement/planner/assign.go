package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// Spec is what to place: the partitions of one keyspace that have no replicas yet.
type Spec struct {
	Keyspace keys.KeyspaceID
	// Partitions is how many to place.
	Partitions int
	// Replicas is how many each of them has.
	Replicas int
	// Rules and Leaders are those of the Keyspace.
	Rules   Rules
	Leaders Selectors
}

// Placed is a partition that has its replicas already, of any keyspace.
type Placed struct {
	Keyspace keys.KeyspaceID
	// Nodes holds the nodes of its replicas, the preferred leader first.
	Nodes []keys.NodeID
}

// Plan says where the replicas of the partitions go.
type Plan struct {
	// Placements has one for each partition of the Spec. It is nil if WaitsFor is set.
	Placements []Placement
	// WaitsFor says in words what has to happen before anything can be placed, as in
	// "2 more nodes (has 1 alive, needs 3)". Empty: nothing.
	WaitsFor string
}

// Placement is the place of one partition, and why.
type Placement struct {
	// Nodes has one for each replica, the preferred leader first.
	Nodes []keys.NodeID
	// Reason says why these.
	Reason Spread
}

// Spread is why a placement is what it is.
type Spread struct {
	// Replicas of the partition, and over how many zones and regions they are spread.
	Replicas, Zones, Regions int
	// Of how many zones and regions there are with nodes alive.
	OfZones, OfRegions int
	// Leads is how many partitions of the keyspace the preferred leader leads, this one included.
	Leads int
	// LeadsLeast is how many the node leads that leads the fewest of the keyspace.
	LeadsLeast int
}

// String is for logs and for people.
func (r Spread) String() string {
	return fmt.Sprintf("%d replicas in %d of %d zones and %d of %d regions; the preferred leader "+
		"leads %d partitions of the keyspace, no node fewer than %d",
		r.Replicas, r.Zones, r.OfZones, r.Regions, r.OfRegions, r.Leads, r.LeadsLeast)
}

// Waits says what has to happen before anything can be placed, in words; empty if it can be placed
// now.
func (s Spec) Waits(nodes []Node) string {
	alive := 0
	var masks []ruleMask
	for i := range nodes {
		n := &nodes[i]
		if !n.Alive || n.Status != Active {
			continue
		}
		alive++
		if mask := s.Rules.mask(n.Labels()); s.Rules.allows(mask) {
			masks = append(masks, mask)
		}
	}
	if missing := s.Replicas - alive; missing > 0 {
		return fmt.Sprintf("%s (has %d alive, needs %d)", plural(missing, "more node"), alive,
			s.Replicas)
	}
	if missing := s.Replicas - len(masks); missing > 0 {
		return fmt.Sprintf("%s%s (has %d alive, needs %d)", plural(missing, "more node"),
			whereAllowed(s.Rules), len(masks), s.Replicas)
	}
	if names, wanted, has := s.Rules.shortage(masks); wanted > 0 {
		return fmt.Sprintf("%s matching %s (has %d alive, needs %d)",
			plural(wanted-has, "more node"), names, has, wanted)
	}
	return ""
}

// Assign places the partitions of the Spec on the nodes that are alive, given where everything else
// is.
func Assign(nodes []Node, spec Spec, placed []Placed) (Plan, error) {
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

// load counts replicas, in the keyspace that is being placed and in all.
type load struct{ keyspace, all int }

// node is a candidate.
type node struct {
	id      keys.NodeID
	zone    *domain
	region  *domain
	replica load
	leads   load
	// mask has the rules that it matches; preferred: the keyspace prefers leaders there.
	mask      ruleMask
	preferred bool
	// used: it has a replica of the partition at hand.
	used bool
}

// domain is a zone or a region.
type domain struct {
	nodes []*node
	// load is the sum over its nodes.
	load load
	// replicas of the partition at hand.
	replicas int
}

// compareLoad compares the average loads of two domains of different sizes, without fractions.
func (d *domain) compareLoad(e *domain) int {
	if c := d.load.keyspace*len(e.nodes) - e.load.keyspace*len(d.nodes); c != 0 {
		return c
	}
	return d.load.all*len(e.nodes) - e.load.all*len(d.nodes)
}

// topology is the nodes that are alive, and where they are.
type topology struct {
	nodes   []*node // by id
	byID    map[keys.NodeID]*node
	zones   []*domain
	regions []*domain
	rules   Rules
}

func newTopology(nodes []Node, spec Spec) (*topology, error) {
	t := &topology{byID: make(map[keys.NodeID]*node, len(nodes)), rules: spec.Rules}
	sorted := slices.Clone(nodes)
	slices.SortFunc(sorted, func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
	zones, regions := map[[2]string]*domain{}, map[string]*domain{}
	for i, n := range sorted {
		if i > 0 && sorted[i-1].ID == n.ID {
			return nil, fmt.Errorf("node %s is listed twice", n.ID)
		}
		if !n.Alive || n.Status != Active {
			continue
		}
		place := [2]string{n.Region, n.Zone}
		if zones[place] == nil {
			zones[place] = &domain{}
			t.zones = append(t.zones, zones[place])
		}
		if regions[n.Region] == nil {
			regions[n.Region] = &domain{}
			t.regions = append(t.regions, regions[n.Region])
		}
		candidate := &node{id: n.ID, zone: zones[place], region: regions[n.Region],
			mask: spec.Rules.mask(n.Labels()), preferred: spec.Leaders.Match(n.Labels())}
		candidate.zone.nodes = append(candidate.zone.nodes, candidate)
		candidate.region.nodes = append(candidate.region.nodes, candidate)
		t.nodes = append(t.nodes, candidate)
		t.byID[n.ID] = candidate
	}
	return t, nil
}

// count adds what is placed already. Replicas on nodes that are not alive do not count.
func (t *topology) count(keyspace keys.KeyspaceID, placed []Placed) {
	for _, p := range placed {
		same := 0
		if p.Keyspace == keyspace {
			same = 1
		}
		for i, id := range p.Nodes {
			n := t.byID[id]
			if n == nil {
				continue
			}
			n.add(load{keyspace: same, all: 1})
			if i == 0 {
				n.leads.keyspace += same
				n.leads.all++
			}
		}
	}
}

func (n *node) add(l load) {
	for _, at := range []*load{&n.replica, &n.zone.load, &n.region.load} {
		at.keyspace += l.keyspace
		at.all += l.all
	}
}

// choose picks the nodes of one partition, and counts them.
func (t *topology) choose(replicas int) []*node {
	set := make([]*node, 0, replicas)
	for range replicas {
		var best *node
		for _, n := range t.nodes {
			if !n.used && t.rules.allows(n.mask) && (best == nil || t.prefer(set, n, best)) {
				best = n
			}
		}
		best.used = true
		best.zone.replicas++
		best.region.replicas++
		set = append(set, best)
	}
	for _, n := range set {
		n.used = false
		n.zone.replicas--
		n.region.replicas--
		n.add(load{keyspace: 1, all: 1})
	}
	return set
}

// prefer says whether the next replica beside a set should rather be on n than on m: first what
// satisfies more of the rules. Every pick that can satisfy one more does, so that all are satisfied
// if that is possible at all.
func (t *topology) prefer(set []*node, n, m *node) bool {
	if len(t.rules) > 0 && n.mask != m.mask {
		masks := make([]ruleMask, 0, maxReplicas)
		for _, one := range set {
			masks = append(masks, one.mask)
		}
		a := t.rules.match(append(masks, n.mask)).violations
		if b := t.rules.match(append(masks, m.mask)).violations; a != b {
			return a < b
		}
	}
	return n.better(m)
}

// better says whether the next replica of the partition at hand should rather be on n than on m.
// Between equals the one that is listed first, which has the lower id, stays.
func (n *node) better(m *node) bool {
	if n.zone != m.zone {
		if c := n.zone.replicas - m.zone.replicas; c != 0 {
			return c < 0
		}
		if n.region != m.region {
			if c := n.region.replicas - m.region.replicas; c != 0 {
				return c < 0
			}
			if c := n.region.compareLoad(m.region); c != 0 {
				return c < 0
			}
		}
		if c := n.zone.compareLoad(m.zone); c != 0 {
			return c < 0
		}
	}
	if c := n.replica.keyspace - m.replica.keyspace; c != 0 {
		return c < 0
	}
	if c := n.replica.all - m.replica.all; c != 0 {
		return c < 0
	}
	return n.leads.less(m.leads)
}

// plan writes the result down, leader first and the rest by id.
func (t *topology) plan(sets [][]*node) Plan {
	least := t.nodes[0].leads.keyspace
	for _, n := range t.nodes {
		least = min(least, n.leads.keyspace)
	}
	plan := Plan{Placements: make([]Placement, len(sets))}
	for i, set := range sets {
		slices.SortFunc(set[1:], func(a, b *node) int { return cmp.Compare(a.id, b.id) })
		p := Placement{Nodes: make([]keys.NodeID, len(set)), Reason: Spread{
			Replicas: len(set), OfZones: len(t.zones), OfRegions: len(t.regions),
			Leads: set[0].leads.keyspace, LeadsLeast: least,
		}}
		for j, n := range set {
			p.Nodes[j] = n.id
			if !slices.ContainsFunc(set[:j], func(m *node) bool { return m.zone == n.zone }) {
				p.Reason.Zones++
			}
			if !slices.ContainsFunc(set[:j], func(m *node) bool { return m.region == n.region }) {
				p.Reason.Regions++
			}
		}
		plan.Placements[i] = p
	}
	return plan
}

// Summary says in one line what a plan does.
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
