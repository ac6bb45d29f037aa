package assign

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/rules"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// load counts replicas or leaders, in the keyspace that is being placed and in all keyspaces.
type load struct{ keyspace, all int }

// node is a node that can be given replicas.
type node struct {
	id      keys.NodeID
	zone    *domain
	region  *domain
	replica load
	leads   load
	// mask has the rules that the node matches; preferred: the keyspace prefers leaders there.
	mask      rules.Mask
	preferred bool
	// used: the node has a replica of the partition at hand.
	used bool
}

// domain is a zone or a region.
type domain struct {
	nodes []*node
	// load is the sum of the replicas on its nodes.
	load load
	// replicas counts the replicas of the partition at hand.
	replicas int
}

// compareLoad compares the mean loads of two domains of different sizes, without fractions.
func (d *domain) compareLoad(e *domain) int {
	if c := d.load.keyspace*len(e.nodes) - e.load.keyspace*len(d.nodes); c != 0 {
		return c
	}
	return d.load.all*len(e.nodes) - e.load.all*len(d.nodes)
}

// topology is the nodes that are alive and active, and where they are.
type topology struct {
	nodes   []*node // by id
	byID    map[keys.NodeID]*node
	zones   []*domain
	regions []*domain
	rules   rules.Rules
}

func newTopology(nodes []planner.Node, spec Spec) (*topology, error) {
	t := &topology{byID: make(map[keys.NodeID]*node, len(nodes)), rules: spec.Rules}
	sorted := slices.Clone(nodes)
	slices.SortFunc(sorted, func(a, b planner.Node) int { return cmp.Compare(a.ID, b.ID) })
	zones, regions := map[[2]string]*domain{}, map[string]*domain{}
	for i, n := range sorted {
		if i > 0 && sorted[i-1].ID == n.ID {
			return nil, fmt.Errorf("node %s is listed twice", n.ID)
		}
		if !n.Alive || n.Status != planner.Active {
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
			mask: spec.Rules.Mask(n.Labels()), preferred: spec.Leaders.Match(n.Labels())}
		candidate.zone.nodes = append(candidate.zone.nodes, candidate)
		candidate.region.nodes = append(candidate.region.nodes, candidate)
		t.nodes = append(t.nodes, candidate)
		t.byID[n.ID] = candidate
	}
	return t, nil
}

// count adds the partitions that are placed already. Replicas on nodes that are not in the topology
// do not count.
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

// choose picks the nodes of one partition, and counts its replicas.
func (t *topology) choose(replicas int) []*node {
	set := make([]*node, 0, replicas)
	for range replicas {
		var best *node
		for _, n := range t.nodes {
			if !n.used && t.rules.Allows(n.mask) && (best == nil || t.prefer(set, n, best)) {
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

// prefer says whether the next replica beside a set should rather be on n than on m. The node with
// which more rules are satisfied is better. Every pick that can satisfy one more rule does, so that
// all rules are satisfied if that is possible at all.
func (t *topology) prefer(set []*node, n, m *node) bool {
	if len(t.rules) > 0 && n.mask != m.mask {
		masks := make([]rules.Mask, 0, rules.MaxReplicas)
		for _, one := range set {
			masks = append(masks, one.mask)
		}
		a := t.rules.Match(append(masks, n.mask)).Violations
		if b := t.rules.Match(append(masks, m.mask)).Violations; a != b {
			return a < b
		}
	}
	return n.better(m)
}

// better says whether the next replica of the partition at hand should rather be on n than on m,
// rules aside. It is false for equals, so that the node of the lower id, which comes first, is
// kept.
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

// plan makes the plan of the chosen sets: the leader first, the other nodes by id.
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
