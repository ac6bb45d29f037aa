package explain

import (
	"fmt"
	"strings"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/objective"
	"github.com/tidemarkdb/tidemark/placement/planner/propose"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
)

// PausedText says why nothing is begun while placement is paused.
const PausedText = "placement is paused, so nothing is begun: `tidemark placement resume` goes on"

// Explainer explains a State as of the last step. It owns nothing.
type Explainer struct {
	state     *state.State
	objective *objective.Objective
	proposer  *propose.Proposer
}

// New returns an Explainer for a State, the Objective over it, and its Proposer.
func New(s *state.State, o *objective.Objective, pr *propose.Proposer) *Explainer {
	return &Explainer{state: s, objective: o, proposer: pr}
}

// verdict says what is wrong with a partition, and what is done about that or why nothing is. It
// returns the operator if one is to be proposed.
func (e *Explainer) verdict(i uint32) (string, *planner.Operator) {
	p := &e.state.Partitions[i]
	ks := &e.state.Keyspaces[p.Keyspace]
	switch {
	case !ks.Known:
		return fmt.Sprintf("keyspace %s is not known", ks.Wants.ID), nil
	case p.Count == 0:
		return "it has no replicas yet", nil
	case p.InFlight:
		return "an operator is in flight", nil
	}
	f, _ := e.objective.Check(i)
	switch f.Urgency {
	case objective.UrgencyNone:
		return "nothing is wrong", nil
	case objective.UrgencyBlocked:
		return e.noQuorum(p), nil
	}
	op, o := e.proposer.Try(f)
	switch o {
	case propose.Proposed:
		text := "to be done: " + op.String()
		if e.state.Settings().Paused {
			text += "; " + PausedText
		}
		return text, &op
	case propose.Waits:
		return e.waitText(p, f), nil
	}
	return e.stuckText(p, f), nil
}

// noQuorum says which replicas a partition needs back.
func (e *Explainer) noQuorum(p *state.Partition) string {
	x := e.objective.Inspect(p)
	var missing []string
	for _, r := range e.state.Replicas(p) {
		if r.Role != planner.Learner && !e.objective.Answers(r) {
			missing = append(missing, e.state.NodeID(r.Node).String())
		}
	}
	return fmt.Sprintf("%d of %d voters answer, fewer than a quorum: nothing is done; it needs the "+
		"replicas on %s back, or tidemark recover", x.Answering, x.Voters,
		strings.Join(missing, ", "))
}

// wrong says what a finding is about.
func (e *Explainer) wrong(p *state.Partition, f objective.Finding) string {
	switch f.Cause {
	case planner.RuleBroken:
		return fmt.Sprintf("the placement %q is not met", e.state.Keyspaces[p.Keyspace].Wants.Rules)
	case planner.TooFew, planner.TooMany:
		x := e.objective.Inspect(p)
		return fmt.Sprintf("it has %d replicas and its keyspace wants %d", x.Voters,
			e.state.Keyspaces[p.Keyspace].Wants.Replicas)
	case planner.NodeDraining, planner.LeaderPreferred, planner.LeaderWanted:
		return fmt.Sprintf("%s: %s leads", f.Cause, e.state.NodeID(p.Leader))
	}
	if f.At == state.NoReplica {
		return f.Cause.String()
	}
	return fmt.Sprintf("%s: %s", f.Cause, e.state.NodeID(e.state.Replicas(p)[f.At].Node))
}

// waitText says what a finding waits for.
func (e *Explainer) waitText(p *state.Partition, f objective.Finding) string {
	text := e.wrong(p, f) + "; "
	switch f.Urgency {
	case objective.UrgencySplit:
		w := e.objective.Split(f.Partition)
		return text + "waits: " + e.splitWaits(f.Partition, &w)
	case objective.UrgencyMerge:
		return text + e.mergeVerdict(f.Partition)
	}
	if f.Urgency == objective.UrgencySpread && e.state.Resting(p) {
		return text + fmt.Sprintf("waits %s, the pause after its last operator",
			e.state.LeftOf(p.Ended, e.state.Settings().Pause))
	}
	if f.Urgency == objective.UrgencyDrain || f.Urgency == objective.UrgencyLeader {
		return text + "waits for other transfers to the same node"
	}
	if e.objective.SenderBusy(e.state.LeaderOf(p)) {
		return text + fmt.Sprintf("waits for %s, which already sends %d snapshots",
			e.state.NodeID(p.Leader), e.state.Nodes[p.Leader].Sending)
	}
	return text + "waits for a node: " + e.census(p, f)
}

// stuckText says why nothing can be done about a finding.
func (e *Explainer) stuckText(p *state.Partition, f objective.Finding) string {
	text := e.wrong(p, f) + "; "
	switch {
	case f.Cause == planner.NewTail:
		return text + "no other node has so much less load that it would be led there"
	case f.Urgency == objective.UrgencySplit || f.Urgency == objective.UrgencyMerge:
		return text + "it betters nothing"
	}
	if f.Urgency == objective.UrgencyDrain || f.Urgency == objective.UrgencyLeader {
		return text + "no other voter can lead"
	}
	if f.Urgency == objective.UrgencySpread {
		return "it is spread as well as rules and nodes allow"
	}
	return text + "no node betters it: " + e.census(p, f)
}

// census counts the nodes by why they cannot hold a replica of a partition.
func (e *Explainer) census(p *state.Partition, f objective.Finding) string {
	var counts [planner.Refusals]int
	for i := range e.state.Nodes {
		if e.state.Nodes[i].Known {
			counts[e.objective.Refuse(p, uint16(i), f.Urgency < objective.UrgencyDrain)]++
		}
	}
	reasons := []string{"could hold it, in a worse place", "receive as many snapshots as they may",
		"are in a zone that receives as many as it may", "have no room", "break its placement",
		"have not answered for long enough", "are draining or decommissioned", "do not answer",
		"hold a replica"}
	var parts []string
	for r, n := range counts {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, reasons[r]))
		}
	}
	return "of the nodes, " + strings.Join(parts, ", ")
}
