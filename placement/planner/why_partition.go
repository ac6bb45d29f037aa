package planner

import (
	"fmt"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// PartitionWhy is what the planner knows of why a partition is where it is.
type PartitionWhy struct {
	Partition keys.PartitionID
	Keyspace  string
	Epoch     Epoch
	// Verdict says what is wrong, and what is done about it or why nothing is.
	Verdict string
	// Next is the operator that would be proposed now, if it were this partition's turn.
	Next     *Operator `json:",omitempty"`
	Replicas []ReplicaWhy
	Leader   LeaderWhy
	// Split is about splitting and merging it.
	Split SplitWhy
}

// ReplicaWhy is the same of one replica.
type ReplicaWhy struct {
	Node keys.NodeID
	Role Role
	// Node as it is now, in words.
	NodeIs string
	// Rule is the placement rule that the replica counts for, if it does for one with a number;
	// Spare is how many more open nodes match it than hold a replica of the partition.
	Rule  string `json:",omitempty"`
	Spare int
	// Spread is what the replica shares with others, in words.
	Spread string
	// Rejected is the best node it could be moved to, and what decided against it.
	Rejected *Alternative `json:",omitempty"`
}

// LeaderWhy is the node that leads and the one that should.
type LeaderWhy struct {
	// Leader leads, Wanted should; 0 if not known or none in particular.
	Leader, Wanted keys.NodeID
	Text           string
}

// WhyPartition explains a partition as of the last step.
func (s *State) WhyPartition(id keys.PartitionID) (*PartitionWhy, error) {
	i, ok := s.partitionIndex[id]
	if !ok {
		return nil, fmt.Errorf("there is no partition %s", id)
	}
	p := &s.partitions[i]
	ks := &s.keyspaces[p.keyspace]
	out := &PartitionWhy{Partition: id, Keyspace: ks.info.Name, Epoch: p.epoch}
	out.Verdict, out.Next = s.verdict(i)
	out.Leader = s.leaderWhy(p)
	if ks.known {
		out.Split = s.splitWhy(i)
	}
	m := matching{}
	x := s.inspect(p)
	whole := x.good == x.voters // else a repair comes before any move
	if len(ks.masks) > 0 {
		m = s.match(ks, s.replicas(p))
	}
	for at, r := range s.replicas(p) {
		why := ReplicaWhy{Node: s.id(r.node), Role: r.role, NodeIs: s.nodeText(r.node),
			Spread: s.spreadText(p, at)}
		if r.damage != Sound {
			why.NodeIs += ", " + s.causeOfBad(r).String()
		}
		if len(ks.masks) > 0 && m.rule[at] != noRule {
			why.Rule = ks.info.Rules[m.rule[at]].String()
			why.Spare = s.spare(p, ks, m.rule[at])
		} else if len(ks.masks) == 0 {
			why.Spare = s.spare(p, ks, noRule)
		}
		if r.role == Voter && ks.known && whole {
			why.Rejected = s.rejectedMove(p, at)
		}
		out.Replicas = append(out.Replicas, why)
	}
	return out, nil
}

// spare counts the open nodes without a replica of the partition that match a rule.
func (s *State) spare(p *partition, ks *keyspaceState, rule int8) int {
	spare := 0
	for n := range s.nodes {
		if !s.nodes[n].cond.is(open) || rule != noRule && ks.masks[n]&(1<<rule) == 0 {
			continue
		}
		if holds := s.firstOf(p, func(r replica) bool { return int(r.node) == n }); holds == noReplica {
			spare++
		}
	}
	return spare
}

func (s *State) nodeText(n uint16) string {
	node := &s.nodes[n]
	since := s.now.Sub(node.info.Since).Round(time.Second)
	text := s.placeOf(n)
	switch {
	case !node.known:
		return "not known"
	case node.info.Status == Gone:
		return text + ", GONE"
	case node.info.Alive:
		text += ", answers"
	case node.cond.is(lost):
		text += fmt.Sprintf(", silent for %s: lost", since)
	default:
		text += fmt.Sprintf(", silent for %s: replaced in %s", since,
			s.settings.RepairDelay-since)
	}
	if node.info.Status != Active {
		text += ", " + node.info.Status.String()
	}
	if why := node.info.averse(); why != "" && node.info.Alive {
		text += fmt.Sprintf(", %s: it leaves leadership to others", why)
	}
	return text
}

func (s *State) spreadText(p *partition, at int) string {
	replicas := s.replicas(p)
	own := &s.nodes[replicas[at].node]
	var zone, region []string
	for i, r := range replicas {
		n := &s.nodes[r.node]
		switch {
		case i == at:
		case n.zone == own.zone:
			zone = append(zone, n.info.ID.String())
		case n.region == own.region:
			region = append(region, n.info.ID.String())
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

func (s *State) leaderWhy(p *partition) LeaderWhy {
	out := LeaderWhy{Leader: s.id(p.leader), Wanted: s.id(p.wanted)}
	switch {
	case p.leader == noNode:
		out.Text = "no leader is known"
	case p.wanted == noNode:
		out.Text = fmt.Sprintf("%s leads, no one in particular is wanted", out.Leader)
	case p.leader == p.wanted:
		out.Text = fmt.Sprintf("%s leads, as is wanted", out.Leader)
	case p.leads == p.wanted && s.averse(p.wanted):
		out.Text = fmt.Sprintf("%s leads, %s is wanted and leaves that to others: %s", out.Leader,
			out.Wanted, s.nodes[p.wanted].info.averse())
	case p.leads == p.wanted:
		out.Text = fmt.Sprintf("%s leads, %s is wanted and can lead", out.Leader, out.Wanted)
	default:
		out.Text = fmt.Sprintf("%s leads, %s is wanted and cannot lead now", out.Leader, out.Wanted)
	}
	if s.disliked(p, p.leader) == 2 {
		out.Text += fmt.Sprintf("; %s is to lead nothing", out.Leader)
	}
	return out
}

// String is on several lines.
func (w *PartitionWhy) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of keyspace %s, epoch %s: %s\n", w.Partition, w.Keyspace, w.Epoch, w.Verdict)
	for _, r := range w.Replicas {
		fmt.Fprintf(&b, "  %s on %s (%s): %s", r.Role, r.Node, r.NodeIs, r.Spread)
		if r.Rule != "" {
			fmt.Fprintf(&b, "; counts for %s, %s to spare", r.Rule, plural(r.Spare, "node"))
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
