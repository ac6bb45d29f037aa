package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/rules"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
	"github.com/tidemarkdb/tidemark/placement/planner/words"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Partition says why a partition is where it is.
type Partition struct {
	Partition keys.PartitionID
	Keyspace  string
	Epoch     planner.Epoch
	// Verdict says what is wrong, and what is done about that or why nothing is.
	Verdict string
	// Next is the operator that would be proposed now, if it were the turn of the partition.
	Next     *planner.Operator `json:",omitempty"`
	Replicas []Replica
	Leader   Leader
	// Split is about splitting and merging the partition.
	Split Split
}

// Replica says why a replica is where it is.
type Replica struct {
	Node keys.NodeID
	Role planner.Role
	// NodeIs says in words how the node is.
	NodeIs string
	// Rule is the placement rule with a number that the replica counts for, if there is one. Spare is
	// how many open nodes match the rule and hold no replica of the partition.
	Rule  string `json:",omitempty"`
	Spare int
	// Spread says in words which other replicas are in the same zone or region.
	Spread string
	// Rejected is the best node that the replica could be moved to, and what decides against that.
	Rejected *planner.Alternative `json:",omitempty"`
}

// Leader says which node leads and which should.
type Leader struct {
	// Leader leads, Wanted should; 0 if not known or no node in particular.
	Leader, Wanted keys.NodeID
	Text           string
}

// Partition explains a partition.
func (e *Explainer) Partition(id keys.PartitionID) (*Partition, error) {
	i, ok := e.state.PartitionIndex(id)
	if !ok {
		return nil, fmt.Errorf("there is no partition %s", id)
	}
	p := &e.state.Partitions[i]
	ks := &e.state.Keyspaces[p.Keyspace]
	out := &Partition{Partition: id, Keyspace: ks.Wants.Name, Epoch: p.Epoch}
	out.Verdict, out.Next = e.verdict(i)
	out.Leader = e.leader(p)
	if ks.Known {
		out.Split = e.split(i)
	}
	m := rules.Matching{}
	x := e.objective.Inspect(p)
	whole := x.Good == x.Voters // otherwise a repair comes before any move
	if len(ks.Masks) > 0 {
		m = e.objective.Match(ks, e.state.Replicas(p))
	}
	for at, r := range e.state.Replicas(p) {
		why := Replica{Node: e.state.NodeID(r.Node), Role: r.Role, NodeIs: e.nodeText(r.Node),
			Spread: e.spreadText(p, at)}
		if r.Damage != planner.Sound {
			why.NodeIs += ", " + e.objective.CauseOfBad(r).String()
		}
		if len(ks.Masks) > 0 && m.Rule[at] != rules.NoRule {
			why.Rule = ks.Wants.Rules[m.Rule[at]].String()
			why.Spare = e.spare(p, ks, m.Rule[at])
		} else if len(ks.Masks) == 0 {
			why.Spare = e.spare(p, ks, rules.NoRule)
		}
		if r.Role == planner.Voter && ks.Known && whole {
			why.Rejected = e.proposer.RejectedMove(p, at)
		}
		out.Replicas = append(out.Replicas, why)
	}
	return out, nil
}

// spare counts the open nodes that match a rule and hold no replica of the partition; with NoRule,
// all open nodes that hold none.
func (e *Explainer) spare(p *state.Partition, ks *state.Keyspace, rule int8) int {
	spare := 0
	for n := range e.state.Nodes {
		if !e.state.Nodes[n].Condition.Is(state.Open) ||
			rule != rules.NoRule && ks.Masks[n]&(1<<rule) == 0 {
			continue
		}
		if !e.state.HasReplica(p, uint16(n)) {
			spare++
		}
	}
	return spare
}

// nodeText says how a node is.
func (e *Explainer) nodeText(n uint16) string {
	node := &e.state.Nodes[n]
	since := e.state.Now().Sub(node.Told.Since).Round(time.Second)
	text := e.objective.PlaceOf(n)
	switch {
	case !node.Known:
		return "not known"
	case node.Told.Status == planner.Gone:
		return text + ", GONE"
	case node.Told.Alive:
		text += ", answers"
	case node.Condition.Is(state.Lost):
		text += fmt.Sprintf(", silent for %s: lost", since)
	default:
		text += fmt.Sprintf(", silent for %s: replaced in %s", since,
			e.state.Settings().RepairDelay-since)
	}
	if node.Told.Status != planner.Active {
		text += ", " + node.Told.Status.String()
	}
	if why := node.Told.AvoidsLeading(); why != "" && node.Told.Alive {
		text += fmt.Sprintf(", %s: it leaves leadership to others", why)
	}
	return text
}

// spreadText says which other replicas are in the zone or region of a replica.
func (e *Explainer) spreadText(p *state.Partition, at int) string {
	replicas := e.state.Replicas(p)
	own := &e.state.Nodes[replicas[at].Node]
	var zone, region []string
	for i, r := range replicas {
		n := &e.state.Nodes[r.Node]
		switch {
		case i == at:
		case n.Zone == own.Zone:
			zone = append(zone, n.Told.ID.String())
		case n.Region == own.Region:
			region = append(region, n.Told.ID.String())
		}
	}
	switch {
	case zone != nil:
		return "shares its zone with " + strings.Join(zone, ", ")
	case region != nil:
		return "alone in its zone, shares its region with " + strings.Join(region, ", ")
	}
	return "alone in its zone and region"
}

// leader explains which node leads.
func (e *Explainer) leader(p *state.Partition) Leader {
	out := Leader{Leader: e.state.NodeID(p.Leader), Wanted: e.state.NodeID(p.Wanted)}
	switch {
	case p.Leader == state.NoNode:
		out.Text = "no leader is known"
	case p.Wanted == state.NoNode:
		out.Text = fmt.Sprintf("%s leads, no one in particular is wanted", out.Leader)
	case p.Leader == p.Wanted:
		out.Text = fmt.Sprintf("%s leads, as is wanted", out.Leader)
	case p.Leads == p.Wanted && e.objective.AvoidsLeading(p.Wanted):
		out.Text = fmt.Sprintf("%s leads, %s is wanted and leaves that to others: %s", out.Leader,
			out.Wanted, e.state.Nodes[p.Wanted].Told.AvoidsLeading())
	case p.Leads == p.Wanted:
		out.Text = fmt.Sprintf("%s leads, %s is wanted and can lead", out.Leader, out.Wanted)
	default:
		out.Text = fmt.Sprintf("%s leads, %s is wanted and cannot lead now", out.Leader, out.Wanted)
	}
	if e.objective.MustNotLead(p) {
		out.Text += fmt.Sprintf("; %s is to lead nothing", out.Leader)
	}
	return out
}

// String says the same on several lines.
func (w *Partition) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of keyspace %s, epoch %s: %s\n", w.Partition, w.Keyspace, w.Epoch, w.Verdict)
	for _, r := range w.Replicas {
		fmt.Fprintf(&b, "  %s on %s (%s): %s", r.Role, r.Node, r.NodeIs, r.Spread)
		if r.Rule != "" {
			fmt.Fprintf(&b, "; counts for %s, %s to spare", r.Rule, words.Plural(r.Spare, "node"))
		}
		b.WriteString("\n")
		if r.Rejected != nil {
			fmt.Fprintf(&b, "    not on %s\n", r.Rejected)
		}
	}
	fmt.Fprintf(&b, "  leader: %s\n", w.Leader.Text)
	if w.Split.Verdict != "" {
		fmt.Fprintf(&b, "  split: %s\n  merge: %s\n", w.Split.Verdict, w.Split.Merge)
	}
	return b.String()
}
