package planner

import (
	"fmt"
	"time"
)

// Refusal is why a node cannot be given a replica or a leadership.
type Refusal uint8

const (
	// Allowed: it can.
	Allowed Refusal = iota
	// NodeBusy and ZoneBusy are limits of what is in flight; NoRoom is a disk that would be too
	// full. They pass.
	NodeBusy
	ZoneBusy
	NoRoom
	// The rest hold until a node or the keyspace changes.
	RuleForbids
	NotSettled
	NodeOut
	NotAnswering
	HoldsReplica
	NotVoter
)

var refusalNames = []string{"allowed", "node busy", "zone busy", "no room", "rule forbids",
	"not settled", "node drained", "not answering", "holds a replica", "no voter"}

func (r Refusal) String() string { return nameOf(refusalNames, int(r)) }

// MarshalText is for JSON.
func (r Refusal) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// passes says whether it may be over without any node or keyspace changing.
func (r Refusal) passes() bool { return r <= NoRoom }

// refuse says why a node cannot be given a replica of a partition. Repairs may fill a disk further
// than other moves.
func (s *State) refuse(p *partition, n uint16, repair bool) Refusal {
	for _, r := range s.replicas(p) {
		if r.node == n {
			return HoldsReplica
		}
	}
	node := &s.nodes[n]
	if !node.cond.is(open) {
		switch {
		case !node.cond.is(live):
			return NotAnswering
		case node.cond.is(drained):
			return NodeOut
		}
		return NotSettled
	}
	ks := &s.keyspaces[p.keyspace]
	if len(ks.masks) > 0 && !ks.info.Rules.allows(ks.masks[n]) {
		return RuleForbids
	}
	limit := s.settings.DiskHigh
	if repair {
		limit = s.settings.DiskFull
	}
	if s.fullness(n, p.bytes) > limit {
		return NoRoom
	}
	return s.busy(n)
}

// busy says whether a node or its zone receives as many snapshots as it may.
func (s *State) busy(n uint16) Refusal {
	node := &s.nodes[n]
	if node.receiving >= s.settings.NodeInFlight {
		return NodeBusy
	}
	if s.zones[node.zone].receiving >= s.settings.ZoneInFlight {
		return ZoneBusy
	}
	return Allowed
}

// senderBusy says the same of the node that would send.
func (s *State) senderBusy(n uint16) bool {
	if n == noNode {
		return false
	}
	node := &s.nodes[n]
	return node.sending >= s.settings.NodeInFlight ||
		s.zones[node.zone].sending >= s.settings.ZoneInFlight
}

// allows says whether the rules without a number let a replica be on a node.
func (r Rules) allows(mask ruleMask) bool {
	for i, rule := range r {
		if rule.Count == 0 && mask&(1<<i) == 0 {
			return false
		}
	}
	return true
}

// refusalText says in words why a node is refused.
func (s *State) refusalText(p *partition, n uint16, why Refusal) string {
	node := &s.nodes[n]
	switch why {
	case NodeBusy:
		return fmt.Sprintf("already receives %d snapshots", node.receiving)
	case ZoneBusy:
		return fmt.Sprintf("%s already receives %d snapshots", s.placeOf(n),
			s.zones[node.zone].receiving)
	case NoRoom:
		return fmt.Sprintf("its disk would be %.0f %% full", 100*s.fullness(n, p.bytes))
	case RuleForbids:
		return fmt.Sprintf("the placement %q forbids it", s.keyspaces[p.keyspace].info.Rules)
	case NotSettled:
		return fmt.Sprintf("has answered for %s only", s.now.Sub(node.info.Since).Round(time.Second))
	case NodeOut:
		return "is " + node.info.Status.String()
	case NotAnswering:
		return "does not answer"
	case HoldsReplica:
		return "holds a replica already"
	case NotVoter:
		return "holds no sound voter"
	case Allowed:
	}
	return "can"
}

func (s *State) placeOf(n uint16) string {
	z := &s.zones[s.nodes[n].zone]
	return place(z.region, z.name)
}
