package planner

import (
	"math"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// SetPartition adds a partition or changes what is known of it, and has it looked at again. It
// refuses what is not sound in itself, as two replicas on one node.
func (s *State) SetPartition(d Partition) error {
	if err := d.validate(); err != nil {
		return err
	}
	var replicas [maxReplicas]replica
	for j, r := range d.Replicas {
		at, err := s.nodeAt(r.Node)
		if err != nil {
			return err
		}
		replicas[j] = replica{node: at, role: r.Role, damage: r.Damage}
	}
	keyspace, err := s.keyspaceAt(d.Keyspace)
	if err != nil {
		return err
	}
	s.keyspaces[keyspace].partitions++
	i, known := s.partitionIndex[d.ID]
	if known {
		s.leaveKeyspace(s.partitions[i].keyspace)
	} else {
		i = s.newPartition(d.ID)
	}
	fly, flies := s.flightOf[i]
	if flies {
		s.project(&s.flights[fly], -1)
	}
	if !known {
		s.inherit(&d)
	}
	p := &s.partitions[i]
	s.account(p, -1)
	s.touchLeftOf(i)
	p.keyspace, p.epoch, p.bytes = keyspace, d.Epoch, d.Bytes
	if !known || d.Measured >= s.settings.LoadWindow {
		p.leaderLoad, p.followerLoad = saturated(d.LeaderLoad), saturated(d.FollowerLoad)
	}
	p.leader, p.wanted, p.ended = noNode, noNode, seconds(d.Ended)
	for j, r := range d.Replicas {
		if r.Node == d.Leader {
			p.leader = replicas[j].node
		}
		if r.Node == d.Wanted {
			p.wanted = replicas[j].node
		}
	}
	s.replace(i, replicas[:len(d.Replicas)])
	p.leads = s.effectiveLeader(p)
	s.account(p, 1)
	s.setGrowth(i, &d)
	if flies {
		s.project(&s.flights[fly], 1)
	}
	s.touchLeftOf(i)
	s.touch(i)
	return nil
}

// RemovePartition forgets a partition; if it is not known, nothing happens.
func (s *State) RemovePartition(id keys.PartitionID) {
	i, ok := s.partitionIndex[id]
	if !ok {
		return
	}
	if fly, flies := s.flightOf[i]; flies {
		s.project(&s.flights[fly], -1)
		s.flights[fly].gone = true
		delete(s.flightOf, i)
	}
	p := &s.partitions[i]
	s.account(p, -1)
	s.replace(i, nil)
	s.touchLeftOf(i)
	s.dropGrowth(i)
	delete(s.partitionIndex, id)
	s.leaveKeyspace(p.keyspace)
	*p = partition{changed: p.changed} // what is listed stays listed
	s.unused = append(s.unused, i)
	s.changes.Removed = append(s.changes.Removed, i)
}

// leaveKeyspace counts a partition less.
func (s *State) leaveKeyspace(i uint16) {
	s.keyspaces[i].partitions--
	s.releaseKeyspace(i)
}

func (s *State) newPartition(id keys.PartitionID) uint32 {
	var i uint32
	if n := len(s.unused); n > 0 {
		i, s.unused = s.unused[n-1], s.unused[:n-1]
		s.changes.Reused = true
	} else {
		i = uint32(len(s.partitions))
		s.partitions = append(s.partitions, partition{})
		s.growths = append(s.growths, growth{})
	}
	p := &s.partitions[i]
	*p = partition{id: id, leader: noNode, wanted: noNode, leads: noNode, changed: p.changed}
	s.partitionIndex[id] = i
	return i
}

func (s *State) indexOf(id keys.NodeID) uint16 {
	if i, ok := s.nodeIndex[id]; ok && id != 0 {
		return i
	}
	return noNode
}

func saturated(c Cores) uint32 { return uint32(min(c, math.MaxUint32)) }

// replicas of a partition. The slice is valid until the next change of a partition.
func (s *State) replicas(p *partition) []replica { return s.arena.block(p.first, p.count) }

// replace sets the replicas of a partition, and keeps the lists of the nodes.
func (s *State) replace(i uint32, next []replica) {
	p := &s.partitions[i]
	now := s.replicas(p)
	same := len(now) == len(next)
	for j := 0; same && j < len(now); j++ {
		same = now[j].node == next[j].node
	}
	if same {
		for j := range now {
			now[j].role, now[j].damage = next[j].role, next[j].damage
		}
		return
	}
	for j := range now {
		s.unlist(&s.nodes[now[j].node], now[j])
	}
	s.arena.free(p.first, p.count)
	p.first, p.count = s.arena.take(uint8(len(next))), uint8(len(next))
	block := s.replicas(p)
	for j := range next {
		block[j] = next[j]
		n := &s.nodes[next[j].node]
		block[j].at = uint32(len(n.list))
		n.list = append(n.list, i)
	}
}

// unlist takes a replica out of its node's list; the last of the list takes its place.
func (s *State) unlist(n *nodeState, r replica) {
	last := len(n.list) - 1
	moved := n.list[last]
	n.list[r.at] = moved
	n.list = n.list[:last]
	block := s.replicas(&s.partitions[moved])
	for j := range block {
		if block[j].node == r.node && block[j].at == uint32(last) {
			block[j].at = r.at
			return
		}
	}
}

// account adds a partition to the sums of its nodes, or takes it out of them.
func (s *State) account(p *partition, sign int64) {
	for _, r := range s.replicas(p) {
		sum := &s.nodes[r.node].sum
		sum[byBytes] += sign * p.bytes
		sum[byLoad] += sign * int64(p.followerLoad)
		sum[byCount] += sign
	}
	if p.leads != noNode {
		s.accountLeader(p, p.leads, sign)
	}
}

// accountLeader adds what leading costs above following.
func (s *State) accountLeader(p *partition, node uint16, sign int64) {
	sum := &s.nodes[node].sum
	sum[byLoad] += sign * (int64(p.leaderLoad) - int64(p.followerLoad))
	sum[byLeaders] += sign
}

// effectiveLeader is the node that is wanted as leader if it can lead, and the one that leads
// otherwise.
func (s *State) effectiveLeader(p *partition) uint16 {
	leader := noNode
	for _, r := range s.replicas(p) {
		if r.node == p.wanted && r.role == Voter && r.damage == Sound &&
			s.nodes[r.node].cond.is(open) {
			return p.wanted
		}
		if r.node == p.leader {
			leader = p.leader
		}
	}
	return leader
}

// leaderOf is the node that leads, if it answers. Otherwise another leads or will, and there is
// no node to hand over or to send a snapshot.
func (s *State) leaderOf(p *partition) uint16 {
	if p.leader != noNode && s.nodes[p.leader].cond.is(live) {
		return p.leader
	}
	return noNode
}

// settleLeader recomputes the effective leader after the condition of a node may have changed.
func (s *State) settleLeader(i uint32) {
	p := &s.partitions[i]
	leads := s.effectiveLeader(p)
	if leads == p.leads {
		return
	}
	fly, flies := s.flightOf[i]
	if flies {
		s.project(&s.flights[fly], -1)
	}
	s.account(p, -1)
	p.leads = leads
	s.account(p, 1)
	if flies {
		s.project(&s.flights[fly], 1)
	}
}
