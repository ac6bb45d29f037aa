package assign

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/rules"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// nodesIn makes nodes of regions, each in a zone of its own.
func nodesIn(regions ...string) []planner.Node {
	var out []planner.Node
	for i, region := range regions {
		out = append(out, planner.Node{ID: keys.NodeID(i + 1), Region: region, Zone: fmt.Sprint("z", i),
			Alive: true})
	}
	return out
}

// A new keyspace is placed where its rules want it, and waits in words for nodes where it cannot
// be.
func TestAssignByRules(t *testing.T) {
	eu2us3 := []string{"eu", "eu", "us", "us", "us"}
	for _, c := range []struct {
		rules   string
		regions []string
		waits   string
		in      map[string]int // replicas of each partition, by region
	}{
		{rules: "region=eu:2,region=us:1", regions: eu2us3, in: map[string]int{"eu": 2, "us": 1}},
		{rules: "region=us", regions: eu2us3, in: map[string]int{"us": 3}},
		{rules: "region=eu:1,region=eu+zone=z0:1", regions: eu2us3,
			in: map[string]int{"eu": 2, "us": 1}},
		{rules: "region=eu", regions: eu2us3,
			waits: "1 more node that the placement \"region=eu\" allows (has 2 alive, needs 3)"},
		{rules: "region=eu:3", regions: eu2us3,
			waits: "1 more node matching region=eu:3 (has 2 alive, needs 3)"},
		{rules: "region=asia:1", regions: eu2us3,
			waits: "1 more node matching region=asia:1 (has 0 alive, needs 1)"},
		{rules: "region=eu:1", regions: []string{"eu"},
			waits: "2 more nodes (has 1 alive, needs 3)"},
	} {
		rules, err := rules.Parse(c.rules)
		if err != nil {
			t.Fatal(err)
		}
		nodes := nodesIn(c.regions...)
		plan, err := Place(nodes, Spec{Keyspace: 1, Partitions: 20, Replicas: 3, Rules: rules}, nil)
		if err != nil || plan.WaitsFor != c.waits {
			t.Errorf("%s: %v, waits for %q, want %q", c.rules, err, plan.WaitsFor, c.waits)
			continue
		}
		for _, p := range plan.Placements {
			in := map[string]int{}
			for _, id := range p.Nodes {
				in[nodes[id-1].Region]++
			}
			if fmt.Sprint(in) != fmt.Sprint(c.in) {
				t.Errorf("%s: placed on %v, which are %v, want %v", c.rules, p.Nodes, in, c.in)
			}
		}
	}
}

// Preferred leaders are where the keyspace prefers them, and as even there as can be.
func TestAssignPrefersLeaders(t *testing.T) {
	nodes := nodesIn("eu", "eu", "us", "us", "us")
	plan, err := Place(nodes, Spec{Keyspace: 1, Partitions: 40, Replicas: 3,
		Rules:   rules.Rules{{On: rules.Selectors{{Key: "region", Value: "eu"}}, Count: 1}},
		Leaders: rules.Selectors{{Key: "region", Value: "eu"}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	leads := make([]int, len(nodes))
	for _, p := range plan.Placements {
		leads[p.Nodes[0]-1]++
	}
	if want := []int{20, 20, 0, 0, 0}; !slices.Equal(leads, want) {
		t.Errorf("preferred leaders of nodes: %v, want %v", leads, want)
	}
}

// A node that drains is given nothing new.
func TestAssignSparesDraining(t *testing.T) {
	nodes := nodesIn("eu", "eu", "eu")
	nodes[1].Status = planner.Draining
	plan, err := Place(nodes, Spec{Keyspace: 1, Partitions: 1, Replicas: 3}, nil)
	if want := "1 more node (has 2 alive, needs 3)"; err != nil || plan.WaitsFor != want {
		t.Errorf("%v, waits for %q, want %q", err, plan.WaitsFor, want)
	}
}
