package planner

// complete makes the operator of a change, if that is better than nothing, and counts it as in
// flight.
func (s *State) complete(c change) (Operator, outcome) {
	p := &s.partitions[c.partition]
	handover := noNode
	if c.remove != noNode && c.remove == s.leaderOf(p) && c.kind != Finish {
		// A leader that is to go hands over first, to a voter that stays; if there is none, to the
		// one that comes.
		var rejected *Alternative
		if handover, rejected = s.bestLeader(p, c.remove); handover == noNode {
			if c.add == noNode {
				return Operator{}, stays
			}
			handover = c.add
		}
		if c.lead == noNode {
			c.lead = handover
			if c.rejected == nil && c.found.found == 0 {
				c.rejected = rejected
			}
		}
	}
	op := Operator{Partition: p.id, Keyspace: s.keyspaces[p.keyspace].info.ID, Kind: c.kind,
		Add: s.id(c.add), Remove: s.id(c.remove), Lead: s.id(c.lead), Reason: c.reason,
		Rejected: c.rejected, Key: c.key, Right: c.right, Epoch: p.epoch}
	if op.Rejected == nil {
		op.Rejected = s.alternative(p, &c.found)
	}
	op.Steps = s.steps(p, &c, handover)
	ends := []uint16{c.add, c.remove, c.lead, p.leads}
	op.Before = s.score(p, c.reason.Cause.level(), ends)
	op.Before[LevelGrowth] = c.growth[0]
	s.launch(flight{partition: c.partition, add: c.add, remove: c.remove, lead: c.lead,
		sender: s.senderOf(p, &c), resizes: c.resizes})
	op.After = s.scoreAfter(p, &c, ends)
	op.After[LevelGrowth] = c.growth[1]
	if at, c := op.After.decide(op.Before); c >= 0 || at > op.Reason.Cause.betters() {
		s.withdraw()
		return Operator{}, stays
	}
	if c.add != noNode && !c.ready {
		op.Bytes = p.bytes
	}
	if c.right != 0 {
		s.shadow(c.right)
	}
	return op, proposed
}

func (s *State) senderOf(p *partition, c *change) uint16 {
	if c.ready {
		return noNode
	}
	return s.leaderOf(p)
}

func (s *State) flightFor(f Flight) flight {
	i := s.partitionIndex[f.Partition]
	return flight{partition: i, add: s.indexOf(f.Add), remove: s.indexOf(f.Remove),
		lead: s.indexOf(f.Lead), sender: s.leaderOf(&s.partitions[i]),
		resizes: f.Split || f.Right != 0}
}

// steps are those of the change, each with the epoch that it expects.
func (s *State) steps(p *partition, c *change, handover uint16) []Step {
	at := p.epoch
	var out []Step
	step := func(action Action, in, leaves uint16) {
		out = append(out, Step{Action: action, In: s.id(in), Out: s.id(leaves), Epoch: at})
		if action != TransferLeader {
			at.Membership++
		}
	}
	switch {
	case c.resizes:
		return nil
	case c.kind == Transfer:
		step(TransferLeader, c.lead, noNode)
		return out
	case c.kind == Finish:
		if c.lead != noNode {
			step(TransferLeader, c.lead, noNode)
		}
		step(LeaveJoint, noNode, c.remove)
		return out
	case c.reason.Cause == LeftoverLearner:
		step(RemoveLearner, noNode, c.remove)
		return out
	}
	if c.add != noNode && !c.ready {
		step(AddLearner, c.add, noNode)
	}
	if handover != noNode && handover != c.add {
		step(TransferLeader, handover, noNode)
	}
	step(EnterJoint, c.add, c.remove)
	if handover != noNode && handover == c.add {
		step(TransferLeader, handover, noNode)
	}
	step(LeaveJoint, noNode, c.remove)
	if c.lead != noNode && c.lead != handover {
		step(TransferLeader, c.lead, noNode)
	}
	return out
}

// after returns the replicas as they are when a change has ended.
func (s *State) after(p *partition, c *change, out *[maxReplicas + 1]replica) []replica {
	n := 0
	for _, r := range s.replicas(p) {
		if r.node == c.remove || c.kind == Finish && r.role == Outgoing {
			continue
		}
		if r.node == c.add || r.role == Incoming && c.kind == Finish {
			r.role = Voter
		}
		out[n] = r
		n++
	}
	if c.add != noNode && !c.ready {
		out[n] = replica{node: c.add}
		n++
	}
	return out[:n]
}

// scoreAfter is the score when a change has ended; it is counted in the sums already.
func (s *State) scoreAfter(p *partition, c *change, nodes []uint16) Score {
	leader := s.misled(p, p.leader)
	if c.lead != noNode {
		leader = s.disliked(p, c.lead) // it becomes the one wanted
	}
	var space [maxReplicas + 1]replica
	return s.scoreAs(p, s.after(p, c, &space), leader, c.reason.Cause.level(), nodes)
}
