package planner

// spread counts pairs of replicas of one partition that share a zone, and that share a region.
type spread struct{ zones, regions int }

func (a spread) less(b spread) bool {
	return a.zones < b.zones || a.zones == b.zones && a.regions < b.regions
}

// inspection is what a partition is like at the time of a step.
type inspection struct {
	// voters are in the configuration, incoming ones included; answering are those of them that
	// answer and are sound; good those that need not be replaced: they may be silent for a while.
	voters, answering, good int
	learners                int
	joint, settled          bool
	// quorum: so many answer that the partition can decide, in both configurations if it is joint.
	quorum bool
	// leaving is how many voters are on nodes that are being decommissioned.
	leaving int
	// violations of the keyspace's rules.
	violations int
	// unsafe is the level of the quorum.
	unsafe int
	spread spread
}

// isBad says whether a replica has to be replaced for the sake of the quorum.
func (s *State) isBad(r replica) bool {
	return r.damage != Sound || s.nodes[r.node].cond.is(lost)
}

func (s *State) answers(r replica) bool {
	return r.damage == Sound && s.nodes[r.node].cond.is(live)
}

func (s *State) inspect(p *partition) inspection { return s.inspectAs(p, s.replicas(p)) }

// inspectAs inspects a partition as if it had other replicas.
func (s *State) inspectAs(p *partition, replicas []replica) inspection {
	x := inspection{}
	var counted [maxReplicas + 1]replica
	n := 0
	incoming, incomingUp, outgoing, outgoingUp := 0, 0, 0, 0
	for _, r := range replicas {
		up := 0
		if s.answers(r) {
			up = 1
		}
		switch r.role {
		case Learner:
			x.learners++
			continue
		case Outgoing:
			x.joint = true
			outgoing++
			outgoingUp += up
			continue
		case Incoming:
			x.joint = true
		case Voter:
			outgoing++
			outgoingUp += up
		}
		incoming++
		incomingUp += up
		x.voters++
		x.answering += up
		if s.isBad(r) {
			continue
		}
		x.good++
		if s.nodes[r.node].cond.is(leaving) {
			x.leaving++
		}
		counted[n] = r
		n++
	}
	x.quorum = 2*incomingUp > incoming && (!x.joint || 2*outgoingUp > outgoing)
	x.spread = s.spreadOf(counted[:n])
	ks := &s.keyspaces[p.keyspace]
	if len(ks.masks) > 0 {
		x.violations = s.match(ks, counted[:n]).violations
	}
	factor := ks.info.Replicas
	bad := x.voters - x.good
	x.unsafe = bad + x.learners + max(factor-x.good, x.good-factor)
	if x.joint {
		x.unsafe++
	}
	x.settled = x.unsafe == 0 && x.answering == x.voters
	return x
}

func (s *State) match(ks *keyspaceState, replicas []replica) matching {
	var masks [maxReplicas + 1]ruleMask
	for i, r := range replicas {
		masks[i] = ks.masks[r.node]
	}
	return ks.info.Rules.match(masks[:len(replicas)])
}

func (s *State) spreadOf(replicas []replica) spread {
	out := spread{}
	for i, r := range replicas {
		n := &s.nodes[r.node]
		for _, other := range replicas[:i] {
			m := &s.nodes[other.node]
			if n.zone == m.zone {
				out.zones++
			}
			if n.region == m.region {
				out.regions++
			}
		}
	}
	return out
}

// leastPairs is how many pairs have to share one of so many places.
func leastPairs(replicas, places int) int {
	if places == 0 {
		return 0
	}
	each, more := replicas/places, replicas%places
	return (places-more)*each*(each-1)/2 + more*each*(each+1)/2
}

// hasSpareSpread says whether a partition could be spread better if rules and nodes allowed it.
func (s *State) hasSpareSpread(x *inspection) bool {
	return s.openZones > 0 && (x.spread.zones > leastPairs(x.good, s.openZones) ||
		x.spread.regions > leastPairs(x.good, s.openRegions))
}
