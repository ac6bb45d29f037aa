package state

import (
	"math"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/rules"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// SetPartition adds a partition or changes what is known of it, and lists it as changed. It refuses
// a partition that contradicts itself, such as one with two replicas on one node.
func (s *State) SetPartition(d planner.Partition) error {
	if err := d.Validate(); err != nil {
		return err
	}
	var replicas [rules.MaxReplicas]Replica
	for j, r := range d.Replicas {
		at, err := s.nodeAt(r.Node)
		if err != nil {
			return err
		}
		replicas[j] = Replica{Node: at, Role: r.Role, Damage: r.Damage}
	}
	keyspace, err := s.keyspaceAt(d.Keyspace)
	if err != nil {
		return err
	}
	s.Keyspaces[keyspace].partitions++
	i, known := s.PartitionIndex(d.ID)
	if known {
		s.leaveKeyspace(s.Partitions[i].Keyspace)
	} else {
		i = s.newPartition(d.ID)
		s.inherit(&d)
	}
	s.takeOut(i)
	s.touchLeftOf(i)
	p := &s.Partitions[i]
	p.Keyspace, p.Epoch, p.Bytes = keyspace, d.Epoch, d.Bytes
	if !known || d.Measured >= s.settings.LoadWindow {
		p.LeaderLoad, p.FollowerLoad = saturated(d.LeaderLoad), saturated(d.FollowerLoad)
	}
	p.Leader, p.Wanted, p.Ended = NoNode, NoNode, seconds(d.Ended)
	for j, r := range d.Replicas {
		if r.Node == d.Leader {
			p.Leader = replicas[j].Node
		}
		if r.Node == d.Wanted {
			p.Wanted = replicas[j].Node
		}
	}
	s.setReplicas(i, replicas[:len(d.Replicas)])
	p.Leads = s.effectiveLeader(p)
	s.setGrowth(i, &d)
	s.putBack(i)
	s.touchLeftOf(i)
	s.touch(i)
	return nil
}

// RemovePartition forgets a partition. A partition that is not known is ignored.
func (s *State) RemovePartition(id keys.PartitionID) {
	i, ok := s.PartitionIndex(id)
	if !ok {
		return
	}
	s.takeOut(i)
	s.inFlight.remove(i)
	s.setReplicas(i, nil)
	s.touchLeftOf(i)
	s.forget(i)
	s.partitionSlots.release(id, i)
	p := &s.Partitions[i]
	s.leaveKeyspace(p.Keyspace)
	*p = Partition{changed: p.changed} // the list of changes still has the index
	s.changes.Removed = append(s.changes.Removed, i)
}

func (s *State) newPartition(id keys.PartitionID) uint32 {
	i := s.partitionSlots.take(id, len(s.Partitions))
	if int(i) == len(s.Partitions) {
		s.Partitions = append(s.Partitions, Partition{})
		s.Growths = append(s.Growths, Growth{})
	} else {
		s.changes.Reused = true
	}
	p := &s.Partitions[i]
	*p = Partition{ID: id, Leader: NoNode, Wanted: NoNode, Leads: NoNode, changed: p.changed}
	return i
}

// saturated is a load as records keep it: at most some 4,294 processors.
func saturated(c planner.Cores) uint32 { return uint32(min(c, math.MaxUint32)) }

// Replicas returns the replicas of a partition. The slice is valid until the next change of any
// partition.
func (s *State) Replicas(p *Partition) []Replica { return s.replicas.block(p.first, p.Count) }

// First returns the index of the replica of which is says true; of several, the one on the node of
// the lowest id, whatever the order of the descriptor is. NoReplica: there is none.
func (s *State) First(p *Partition, is func(Replica) bool) int8 {
	best := NoReplica
	for i, r := range s.Replicas(p) {
		if is(r) && (best == NoReplica || s.NodeID(r.Node) < s.NodeID(s.Replicas(p)[best].Node)) {
			best = int8(i)
		}
	}
	return best
}

// HasReplica says whether a partition has a replica on a node.
func (s *State) HasReplica(p *Partition, n uint16) bool {
	for _, r := range s.Replicas(p) {
		if r.Node == n {
			return true
		}
	}
	return false
}

// Apart counts the replicas of p on nodes where q has none.
func (s *State) Apart(p, q *Partition) int {
	n := 0
	for _, r := range s.Replicas(p) {
		if !s.HasReplica(q, r.Node) {
			n++
		}
	}
	return n
}

// setReplicas sets the replicas of a partition, and keeps the lists of the nodes.
func (s *State) setReplicas(i uint32, next []Replica) {
	p := &s.Partitions[i]
	now := s.Replicas(p)
	same := len(now) == len(next)
	for j := 0; same && j < len(now); j++ {
		same = now[j].Node == next[j].Node
	}
	if same {
		for j := range now {
			now[j].Role, now[j].Damage = next[j].Role, next[j].Damage
		}
		return
	}
	for j := range now {
		s.unlist(&s.Nodes[now[j].Node], now[j])
	}
	s.replicas.free(p.first, p.Count)
	p.first, p.Count = s.replicas.take(uint8(len(next))), uint8(len(next))
	block := s.Replicas(p)
	for j := range next {
		block[j] = next[j]
		n := &s.Nodes[next[j].Node]
		block[j].listed = uint32(len(n.Partitions))
		n.Partitions = append(n.Partitions, i)
	}
}

// unlist takes a replica out of the list of its node. The last entry of the list takes its place.
func (s *State) unlist(n *Node, r Replica) {
	last := len(n.Partitions) - 1
	moved := n.Partitions[last]
	n.Partitions[r.listed] = moved
	n.Partitions = n.Partitions[:last]
	block := s.Replicas(&s.Partitions[moved])
	for j := range block {
		if block[j].Node == r.Node && block[j].listed == uint32(last) {
			block[j].listed = r.listed
			return
		}
	}
}

// takeOut takes a partition, and what its operator in flight will change, out of the sums of the
// nodes. A partition is out of the sums while its record changes; putBack ends that.
func (s *State) takeOut(i uint32) {
	if p := &s.Partitions[i]; p.InFlight {
		s.project(s.inFlight.get(i), -1)
	}
	s.account(&s.Partitions[i], -1)
}

// putBack adds a partition that was taken out to the sums of the nodes.
func (s *State) putBack(i uint32) {
	s.account(&s.Partitions[i], 1)
	if p := &s.Partitions[i]; p.InFlight {
		s.project(s.inFlight.get(i), 1)
	}
}

// account adds a partition to the sums of its nodes and of its keyspace, or subtracts it from them.
func (s *State) account(p *Partition, sign int64) {
	if p.ID != 0 {
		s.Keyspaces[p.Keyspace].bytes += sign * p.Bytes
	}
	accountOn(s, s.Nodes, p, sign)
}

// accountOn is account for the sums of any nodes.
func accountOn(s *State, nodes []Node, p *Partition, sign int64) {
	for _, r := range s.Replicas(p) {
		nodes[r.Node].hold(p, sign)
	}
	if p.Leads != NoNode {
		nodes[p.Leads].lead(p, sign)
	}
}

// effectiveLeader is the node that is wanted as leader, if that node can lead, and the node that
// leads otherwise.
func (s *State) effectiveLeader(p *Partition) uint16 {
	leader := NoNode
	for _, r := range s.Replicas(p) {
		if r.Node == p.Wanted && r.Role == planner.Voter && r.Damage == planner.Sound &&
			s.Nodes[r.Node].Condition.Is(Open) {
			return p.Wanted
		}
		if r.Node == p.Leader {
			leader = p.Leader
		}
	}
	return leader
}

// LeaderOf returns the node that leads a partition, if that node answers. If it does not, another
// node leads or will lead, and no node can hand leadership over or send a snapshot: NoNode.
func (s *State) LeaderOf(p *Partition) uint16 {
	if p.Leader != NoNode && s.Nodes[p.Leader].Condition.Is(Live) {
		return p.Leader
	}
	return NoNode
}

// settleLeader computes the effective leader anew: the condition of a node may have changed.
func (s *State) settleLeader(i uint32) {
	p := &s.Partitions[i]
	if leads := s.effectiveLeader(p); leads != p.Leads {
		s.takeOut(i)
		p.Leads = leads
		s.putBack(i)
	}
}
