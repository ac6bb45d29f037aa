package objective

import (
	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/rules"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
)

// Spread counts the pairs of replicas of a partition that share a zone, and that share a region.
type Spread struct{ Zones, Regions int }

// Less says whether a is spread better than b.
func (a Spread) Less(b Spread) bool {
	return a.Zones < b.Zones || a.Zones == b.Zones && a.Regions < b.Regions
}

// Inspection is how a partition is at the time of a step.
type Inspection struct {
	// Voters counts the voters of the configuration, incoming ones included, but not outgoing ones.
	Voters int
	// Answering counts the voters that answer and are sound.
	Answering int
	// Good counts the voters that need not be replaced. A good voter may be silent for a while.
	Good int
	// Leaving counts the good voters on nodes that are being decommissioned.
	Leaving  int
	Learners int
	// joint: a change of replicas is half done.
	joint bool
	// Quorum: enough voters answer for a decision, in both configurations if the partition is joint.
	Quorum bool
	// Settled: the number of voters is right, all answer, and no change is half done.
	Settled bool
	// Violations counts how often the rules of the keyspace are broken.
	Violations int
	// unsafe is the value of planner.LevelQuorum.
	unsafe int
	// Spread is that of the good voters.
	Spread Spread
}

// MustReplace says whether a replica is lost or damaged.
func (o *Objective) MustReplace(r state.Replica) bool {
	return mustReplace(&o.state.Nodes[r.Node], r)
}

func mustReplace(n *state.Node, r state.Replica) bool {
	return r.Damage != planner.Sound || n.Condition.Is(state.Lost)
}

// Answers says whether a replica is sound and its node answers.
func (o *Objective) Answers(r state.Replica) bool {
	return answers(&o.state.Nodes[r.Node], r)
}

func answers(n *state.Node, r state.Replica) bool {
	return r.Damage == planner.Sound && n.Condition.Is(state.Live)
}

// Inspect finds out how a partition is.
func (o *Objective) Inspect(p *state.Partition) Inspection {
	return o.inspectAs(p, o.state.Replicas(p))
}

// inspectAs finds out how a partition would be if it had other replicas.
func (o *Objective) inspectAs(p *state.Partition, replicas []state.Replica) Inspection {
	x, nodes := Inspection{}, o.state.Nodes
	var counted [rules.MaxReplicas + 1]state.Replica
	n := 0
	incoming, incomingUp, outgoing, outgoingUp := 0, 0, 0, 0
	for _, r := range replicas {
		node, up := &nodes[r.Node], 0
		if answers(node, r) {
			up = 1
		}
		switch r.Role {
		case planner.Learner:
			x.Learners++
			continue
		case planner.Outgoing:
			x.joint = true
			outgoing++
			outgoingUp += up
			continue
		case planner.Incoming:
			x.joint = true
		case planner.Voter:
			outgoing++
			outgoingUp += up
		}
		incoming++
		incomingUp += up
		x.Voters++
		x.Answering += up
		if mustReplace(node, r) {
			continue
		}
		x.Good++
		if node.Condition.Is(state.Leaving) {
			x.Leaving++
		}
		counted[n] = r
		n++
	}
	x.Quorum = 2*incomingUp > incoming && (!x.joint || 2*outgoingUp > outgoing)
	x.Spread = o.SpreadOf(counted[:n])
	ks := &o.state.Keyspaces[p.Keyspace]
	if len(ks.Masks) > 0 {
		x.Violations = o.Match(ks, counted[:n]).Violations
	}
	factor := ks.Wants.Replicas
	bad := x.Voters - x.Good
	x.unsafe = bad + x.Learners + max(factor-x.Good, x.Good-factor)
	if x.joint {
		x.unsafe++
	}
	x.Settled = x.unsafe == 0 && x.Answering == x.Voters
	return x
}

// Match assigns replicas to the rules of a keyspace.
func (o *Objective) Match(ks *state.Keyspace, replicas []state.Replica) rules.Matching {
	var masks [rules.MaxReplicas + 1]rules.Mask
	for i, r := range replicas {
		masks[i] = ks.Masks[r.Node]
	}
	return ks.Wants.Rules.Match(masks[:len(replicas)])
}

// SpreadOf counts the pairs among replicas.
func (o *Objective) SpreadOf(replicas []state.Replica) Spread {
	out, nodes := Spread{}, o.state.Nodes
	for i, r := range replicas {
		n := &nodes[r.Node]
		for _, other := range replicas[:i] {
			m := &nodes[other.Node]
			if n.Zone == m.Zone {
				out.Zones++
			}
			if n.Region == m.Region {
				out.Regions++
			}
		}
	}
	return out
}

// leastPairs is how many pairs of replicas have to share a place if there are only so many places.
func leastPairs(replicas, places int) int {
	if places == 0 {
		return 0
	}
	each, more := replicas/places, replicas%places
	return (places-more)*each*(each-1)/2 + more*each*(each+1)/2
}

// CouldSpread says whether a partition could be spread better, if rules and nodes allowed that.
func (o *Objective) CouldSpread(x *Inspection) bool {
	return o.state.OpenZones > 0 && (x.Spread.Zones > leastPairs(x.Good, o.state.OpenZones) ||
		x.Spread.Regions > leastPairs(x.Good, o.state.OpenRegions))
}
