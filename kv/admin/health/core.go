package health

import (
	"fmt"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/kv/admin"
)

// NearlyAll is the number of log entries that a member of the core may lack and still count as
// caught up: during writes, members always lack the entries that are being sent.
const NearlyAll = 64

// judgeCore adds the problems of the consistent core and of the coordination store. notReady and
// slow are the addresses of nodes already named as not ready or with a slow disk: their servers are
// named once.
func (p *Problems) judgeCore(core admin.Core, notReady, slow map[string]bool) {
	name := func(id uint64) string {
		for _, m := range core.Members {
			if m.ID == id {
				return fmt.Sprintf("member %d (%s)", id, m.Address)
			}
		}
		return fmt.Sprintf("member %d", id)
	}
	answers := map[uint64]bool{}
	for _, m := range core.Members {
		answers[m.ID] = m.Answers
	}
	for _, m := range core.Members {
		switch {
		case !m.Answers:
			p.Core.Add("%s does not answer", name(m.ID))
		case m.Role != "learner" && m.Snapshot:
			p.Core.Add("%s has not caught up: it is sent the state", name(m.ID))
		case m.Role != "learner" && m.Behind > NearlyAll:
			p.Core.Add("%s has not caught up: it lacks %d entries", name(m.ID), m.Behind)
		}
		if m.Health == nil {
			continue
		}
		if !notReady[m.Address] {
			for _, reason := range m.Health.NotReady {
				p.Unhealthy.Add("the server of core %s is not ready: %s", name(m.ID), reason)
			}
		}
		switch {
		case slow[m.Address]:
		case m.Health.DiskStalled:
			p.Unhealthy.Add("core %s: its disk stands still, no write to its log ends; others lead "+
				"meanwhile", name(m.ID))
		case m.Health.DiskSlow:
			p.Unhealthy.Add("core %s: its disk is slow, its log takes %v to sync, many times longer "+
				"than those of others; others lead meanwhile", name(m.ID),
				m.Health.LogSync.Round(time.Millisecond))
		}
		for _, other := range m.Health.Silent {
			p.judgeLink("core "+name(m.ID), name(other), m.ID < other, answers[other],
				hearsMember(core, other, m.ID))
		}
	}
	p.judgeVoters("the core", core, answers)
	p.judgeCoordination(core, name)
}

// judgeVoters says how many more voters may fail, if some have failed.
func (p *Problems) judgeVoters(of string, core admin.Core, answers map[uint64]bool) {
	voters, well := 0, 0
	for _, m := range core.Members {
		if m.Role == "learner" {
			continue
		}
		voters++
		if answers[m.ID] {
			well++
		}
	}
	if well == voters {
		return
	}
	switch spare := well - (voters/2 + 1); {
	case spare < 0:
		p.Core.Add("%d of %d voters of %s answer: there is no quorum", well, voters, of)
	case spare == 0:
		p.Core.Add("%d of %d voters of %s answer: there is no quorum if one more fails", well, voters,
			of)
	default:
		p.Core.Add("%d of %d voters of %s answer: %d more may fail", well, voters, of, spare)
	}
}

// judgeCoordination adds the problems of the coordination store, which has the core's members.
func (p *Problems) judgeCoordination(core admin.Core, name func(uint64) string) {
	var leader *admin.CoreMemberInfo
	open := false
	alarms := map[admin.CoordinationAlarm]bool{}
	for i, m := range core.Members {
		if m.LeadsCoordination && m.Answers {
			leader = &core.Members[i]
		}
		if m.Health == nil {
			continue
		}
		open = open || m.Health.CoordinationOpen
		if why := m.Health.CoordinationFailed; why != "" {
			p.Core.Add("the part of %s of the coordination store has failed: %s", name(m.ID), why)
		}
		for _, a := range m.Health.Alarms {
			if alarms[a] {
				continue
			}
			alarms[a] = true
			if a.Type == "NOSPACE" {
				p.Full.Add("the coordination store takes no puts: alarm NOSPACE of member %x", a.Server)
			} else {
				p.Unhealthy.Add("the coordination store takes no writes: alarm %s of member %x", a.Type,
					a.Server)
			}
		}
	}
	switch {
	case !open:
		return // there is no store yet, or the members run a version that does not report it
	case leader == nil:
		p.Unavailable.Add("the coordination store (locks, leases, the etcd API): no leader")
		return
	case leader.Health == nil:
		return
	}
	answers := map[uint64]bool{leader.ID: true}
	for _, f := range leader.Health.Coordination {
		answers[f.ID] = f.Answers
		at := slices.IndexFunc(core.Members, func(m admin.CoreMemberInfo) bool { return m.ID == f.ID })
		if at < 0 || !core.Members[at].Answers || core.Members[at].Role == "learner" {
			continue // the member is named already, or does not count
		}
		failed := core.Members[at].Health != nil && core.Members[at].Health.CoordinationFailed != ""
		switch {
		case failed:
		case !f.Answers:
			p.Core.Add("the part of %s of the coordination store does not answer", name(f.ID))
		case f.Snapshot:
			p.Core.Add("the part of %s of the coordination store has not caught up: it is sent the "+
				"state", name(f.ID))
		case f.Behind > NearlyAll:
			p.Core.Add("the part of %s of the coordination store has not caught up: it lacks %d "+
				"entries", name(f.ID), f.Behind)
		}
	}
	if len(leader.Health.Coordination) > 0 {
		p.judgeVoters("the coordination store", core, answers)
	}
}

// hearsMember reports whether a member of the core hears another one, if the member has reported
// that.
func hearsMember(core admin.Core, member, other uint64) bool {
	for _, m := range core.Members {
		if m.ID == member {
			return m.Health == nil || !slices.Contains(m.Health.Silent, other)
		}
	}
	return true
}

// judgeLinks adds the pairs of nodes that are alive and do not hear each other.
func (p *Problems) judgeLinks(nodes []admin.NodeInfo) {
	alive := map[uint64]admin.NodeInfo{}
	for _, n := range nodes {
		if n.Alive && n.Status != admin.NodeGone {
			alive[n.ID] = n
		}
	}
	for _, n := range nodes {
		if _, ok := alive[n.ID]; !ok {
			continue
		}
		for _, id := range n.Silent {
			other, up := alive[id]
			p.judgeLink(fmt.Sprintf("node %d (%s)", n.ID, n.Address),
				fmt.Sprintf("node %d (%s)", id, other.Address), n.ID < id, up,
				!slices.Contains(other.Silent, n.ID))
		}
	}
}

// judgeLink adds the problem that the server from does not hear the server to. first: if neither
// hears the other, only this direction is reported. up: to is not named as down. hears: to hears
// from.
func (p *Problems) judgeLink(from, to string, first, up, hears bool) {
	switch {
	case !up:
	case hears:
		p.Links.Add("%s does not hear %s", from, to)
	case first:
		p.Links.Add("%s and %s do not hear each other", from, to)
	}
}

// judgeCopies adds the nodes whose replicas have not caught up, or may not have caught up.
func (p *Problems) judgeCopies(nodes []admin.NodeInfo, holds map[uint64]bool) (again bool) {
	behind := map[uint64]int{}
	for _, n := range nodes {
		if n.Alive {
			for id, count := range n.Behind {
				behind[id] += count
			}
		}
	}
	for _, n := range nodes {
		switch {
		case !n.Alive || n.Status == admin.NodeGone:
		case behind[n.ID] > 0:
			verb := "have"
			if behind[n.ID] == 1 {
				verb = "has"
			}
			p.UnderReplicated.Add("node %d (%s): %s %s not caught up", n.ID, n.Address,
				plural(behind[n.ID], "replica"), verb)
		case !holds[n.ID] || len(n.AwaitsReports) == 0:
		case slices.Contains(n.AwaitsReports, n.ID):
			again = true
			p.UnderReplicated.Add("node %d (%s) has not told the core's leader yet how it is", n.ID,
				n.Address)
		default:
			p.UnderReplicated.Add("node %d (%s) has just started: it is not known yet whether its "+
				"replicas have caught up", n.ID, n.Address)
		}
	}
	return again
}
