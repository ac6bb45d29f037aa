package propose

import (
	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/rules"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
)

// complete makes the operator of a change and counts it as in flight. If the operator would not
// better the level that it is for, or would worsen a higher level, the outcome is Stuck.
func (pr *Proposer) complete(c change) (planner.Operator, Outcome) {
	p := &pr.state.Partitions[c.partition]
	handover := state.NoNode
	if c.remove != state.NoNode && c.remove == pr.state.LeaderOf(p) && c.kind != planner.Finish {
		// A leader whose replica is removed hands leadership over first: to a voter that stays or, if
		// none can lead, to the replica that is added.
		var rejected *planner.Alternative
		if handover, rejected = pr.bestLeader(p, c.remove); handover == state.NoNode {
			if c.add == state.NoNode {
				return planner.Operator{}, Stuck
			}
			handover = c.add
		}
		if c.lead == state.NoNode {
			c.lead = handover
			if c.rejected == nil && c.found.found == 0 {
				c.rejected = rejected
			}
		}
	}
	op := planner.Operator{Partition: p.ID, Keyspace: pr.state.Keyspaces[p.Keyspace].Wants.ID,
		Kind: c.kind, Add: pr.state.NodeID(c.add), Remove: pr.state.NodeID(c.remove),
		Lead: pr.state.NodeID(c.lead), Reason: c.reason, Rejected: c.rejected, Key: c.key,
		Right: c.right, Epoch: p.Epoch}
	if op.Rejected == nil {
		op.Rejected = pr.alternative(p, &c.found)
	}
	op.Steps = pr.steps(p, &c, handover)
	ends := []uint16{c.add, c.remove, c.lead, p.Leads}
	op.Before = pr.objective.Score(p, c.reason.Cause.Level(), ends)
	op.Before[planner.LevelGrowth] = c.growth[0]
	sender := state.NoNode
	if !c.ready {
		sender = pr.state.LeaderOf(p)
	}
	pr.state.Launch(state.InFlight{Partition: c.partition, Add: c.add, Remove: c.remove,
		Lead: c.lead, Sender: sender, Resizes: c.resizes})
	op.After = pr.scoreAfter(p, &c, ends)
	op.After[planner.LevelGrowth] = c.growth[1]
	if at, c := op.After.Decide(op.Before); c >= 0 || at > op.Reason.Cause.Betters() {
		pr.state.Withdraw()
		return planner.Operator{}, Stuck
	}
	if c.add != state.NoNode && !c.ready {
		op.Bytes = p.Bytes
	}
	if c.right != 0 {
		pr.state.Shadow(c.right)
	}
	return op, Proposed
}

// steps are the steps of a change. handover is the node that leads while the leader's replica is
// removed, NoNode if no handover is needed.
func (pr *Proposer) steps(p *state.Partition, c *change, handover uint16) []planner.Step {
	at := p.Epoch
	var out []planner.Step
	step := func(action planner.Action, in, leaves uint16) {
		out = append(out, planner.Step{Action: action, In: pr.state.NodeID(in),
			Out: pr.state.NodeID(leaves), Epoch: at})
		if action != planner.TransferLeader {
			at.Membership++
		}
	}
	switch {
	case c.resizes:
		return nil
	case c.kind == planner.Transfer:
		step(planner.TransferLeader, c.lead, state.NoNode)
		return out
	case c.kind == planner.Finish:
		if c.lead != state.NoNode {
			step(planner.TransferLeader, c.lead, state.NoNode)
		}
		step(planner.LeaveJoint, state.NoNode, c.remove)
		return out
	case c.reason.Cause == planner.LeftoverLearner:
		step(planner.RemoveLearner, state.NoNode, c.remove)
		return out
	}
	if c.add != state.NoNode && !c.ready {
		step(planner.AddLearner, c.add, state.NoNode)
	}
	if handover != state.NoNode && handover != c.add {
		step(planner.TransferLeader, handover, state.NoNode)
	}
	step(planner.EnterJoint, c.add, c.remove)
	if handover != state.NoNode && handover == c.add {
		step(planner.TransferLeader, handover, state.NoNode)
	}
	step(planner.LeaveJoint, state.NoNode, c.remove)
	if c.lead != state.NoNode && c.lead != handover {
		step(planner.TransferLeader, c.lead, state.NoNode)
	}
	return out
}

// after returns the replicas when a change has ended. out has space for them.
func (pr *Proposer) after(
	p *state.Partition, c *change, out *[rules.MaxReplicas + 1]state.Replica,
) []state.Replica {
	n := 0
	for _, r := range pr.state.Replicas(p) {
		if r.Node == c.remove || c.kind == planner.Finish && r.Role == planner.Outgoing {
			continue
		}
		if r.Node == c.add || r.Role == planner.Incoming && c.kind == planner.Finish {
			r.Role = planner.Voter
		}
		out[n] = r
		n++
	}
	if c.add != state.NoNode && !c.ready {
		out[n] = state.Replica{Node: c.add}
		n++
	}
	return out[:n]
}

// scoreAfter is the score when a change has ended. The sums of the nodes count the change already.
func (pr *Proposer) scoreAfter(p *state.Partition, c *change, nodes []uint16) planner.Score {
	leader := pr.objective.PresentLeaderCost(p, p.Leader)
	if c.lead != state.NoNode {
		leader = pr.objective.LeaderCost(p, c.lead) // c.lead becomes wanted as leader
	}
	var space [rules.MaxReplicas + 1]state.Replica
	return pr.objective.ScoreAs(p, pr.after(p, c, &space), leader, c.reason.Cause.Level(), nodes)
}
