package planner

import (
	"fmt"
	"strings"
	"time"
)

// verdict says in words what is wrong with a partition and what will be done about it, and gives
// the operator if one is to be proposed. It changes nothing.
func (s *State) verdict(i uint32) (string, *Operator) {
	p := &s.partitions[i]
	ks := &s.keyspaces[p.keyspace]
	switch {
	case !ks.known:
		return fmt.Sprintf("keyspace %s is not known", ks.info.ID), nil
	case p.count == 0:
		return "it has no replicas yet", nil
	case p.flying:
		return "an operator is in flight", nil
	}
	f := s.check(i)
	switch f.urgency {
	case urgeNothing:
		return "nothing is wrong", nil
	case urgeBlocked:
		return s.noQuorum(p), nil
	}
	op, o := s.try(f)
	switch o {
	case proposed:
		text := "to be done: " + op.String()
		if s.settings.Paused {
			text += "; " + pausedText
		}
		return text, &op
	case waits:
		return s.waitText(p, f), nil
	}
	return s.stayText(p, f), nil
}

func (s *State) noQuorum(p *partition) string {
	x := s.inspect(p)
	var missing []string
	for _, r := range s.replicas(p) {
		if r.role != Learner && !s.answers(r) {
			missing = append(missing, s.id(r.node).String())
		}
	}
	return fmt.Sprintf("%d of %d voters answer, fewer than a quorum: nothing is done; it needs the "+
		"replicas on %s back, or tidemark recover", x.answering, x.voters,
		strings.Join(missing, ", "))
}

// wrong names what a finding is about.
func (s *State) wrong(p *partition, f finding) string {
	switch f.cause {
	case RuleBroken:
		return fmt.Sprintf("the placement %q is not met", s.keyspaces[p.keyspace].info.Rules)
	case TooFew, TooMany:
		x := s.inspect(p)
		return fmt.Sprintf("it has %d replicas and its keyspace wants %d", x.voters,
			s.keyspaces[p.keyspace].info.Replicas)
	case NodeDraining, LeaderPreferred, LeaderWanted:
		return fmt.Sprintf("%s: %s leads", f.cause, s.id(p.leader))
	}
	if f.at == noReplica {
		return f.cause.String()
	}
	return fmt.Sprintf("%s: %s", f.cause, s.id(s.replicas(p)[f.at].node))
}

func (s *State) waitText(p *partition, f finding) string {
	text := s.wrong(p, f) + "; "
	switch f.urgency {
	case urgeSplit:
		w := s.splittingOf(f.partition)
		return text + "waits: " + s.splitWaits(f.partition, &w)
	case urgeMerge:
		return text + s.mergeVerdict(f.partition)
	}
	if f.urgency == urgeSpread && s.paused(p) {
		left := time.Duration(int64(p.ended)-s.now.Unix())*time.Second + s.settings.Pause
		return text + fmt.Sprintf("waits %s, the pause after its last operator", left)
	}
	if f.urgency == urgeDrain || f.urgency == urgeLeader {
		return text + "waits for other transfers to the same node"
	}
	if s.senderBusy(s.leaderOf(p)) {
		return text + fmt.Sprintf("waits for %s, which already sends %d snapshots",
			s.id(p.leader), s.nodes[p.leader].sending)
	}
	return text + "waits for a node: " + s.census(p, f)
}

func (s *State) stayText(p *partition, f finding) string {
	text := s.wrong(p, f) + "; "
	switch {
	case f.cause == NewEnd:
		return text + "no other node has so much less load that it would be led there"
	case f.urgency == urgeSplit || f.urgency == urgeMerge:
		return text + "it betters nothing"
	}
	if f.urgency == urgeDrain || f.urgency == urgeLeader {
		return text + "no other voter can lead"
	}
	if f.urgency == urgeSpread {
		return "it is spread as well as rules and nodes allow"
	}
	return text + "no node betters it: " + s.census(p, f)
}

// census counts why nodes cannot take a replica of a partition.
func (s *State) census(p *partition, f finding) string {
	var counts [NotVoter + 1]int
	for i := range s.nodes {
		if s.nodes[i].known {
			counts[s.refuse(p, uint16(i), f.urgency < urgeDrain)]++
		}
	}
	words := []string{"could hold it, in a worse place", "receive as many snapshots as they may",
		"are in a zone that receives as many as it may", "have no room", "break its placement",
		"have not answered for long enough", "are draining or decommissioned", "do not answer",
		"hold a replica", "hold no voter"}
	var parts []string
	for r, n := range counts {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, words[r]))
		}
	}
	return "of the nodes, " + strings.Join(parts, ", ")
}
