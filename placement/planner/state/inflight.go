package state

import (
	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// setInFlight replaces the operators in flight. A partition whose operator is no longer in flight
// is listed as changed: the operator may have ended without success.
func (s *State) setInFlight(list []planner.InFlight) {
	before := s.inFlight.list
	for i := range before {
		if f := &before[i]; !f.gone {
			s.project(f, -1)
			s.Partitions[f.Partition].InFlight = false
		}
		s.occupy(&before[i], -1)
	}
	s.inFlight.list = make([]InFlight, 0, len(list))
	clear(s.of)
	for _, in := range list {
		i, ok := s.PartitionIndex(in.Partition)
		if !ok {
			continue
		}
		if !s.Partitions[i].InFlight {
			s.Launch(s.Indexed(i, in))
		}
		if in.Right != 0 {
			s.Shadow(in.Right)
		}
	}
	for i := range before {
		if f := &before[i]; !f.gone && !s.Partitions[f.Partition].InFlight {
			s.touch(f.Partition)
		}
	}
}

// Indexed returns an operator in flight of the partition at an index.
func (s *State) Indexed(i uint32, in planner.InFlight) InFlight {
	return InFlight{Partition: i, Add: s.NodeIndex(in.Add), Remove: s.NodeIndex(in.Remove),
		Lead: s.NodeIndex(in.Lead), Sender: s.LeaderOf(&s.Partitions[i]),
		Resizes: in.Split || in.Right != 0}
}

// Launch counts an operator as done, and its partition as in flight.
func (s *State) Launch(f InFlight) {
	s.of[f.Partition] = len(s.inFlight.list)
	s.Partitions[f.Partition].InFlight = true
	s.inFlight.list = append(s.inFlight.list, f)
	s.project(&f, 1)
	s.occupy(&f, 1)
}

// Shadow counts a partition as in flight that the operator launched last merges into another one.
func (s *State) Shadow(id keys.PartitionID) {
	if i, ok := s.PartitionIndex(id); ok && !s.Partitions[i].InFlight {
		f := s.Indexed(i, planner.InFlight{Partition: id})
		f.shadow = true
		s.Launch(f)
	}
}

// Withdraw takes back the operator launched last, with its shadow.
func (s *State) Withdraw() {
	for shadow := true; shadow; {
		last := len(s.inFlight.list) - 1
		f := s.inFlight.list[last]
		s.inFlight.list = s.inFlight.list[:last]
		delete(s.of, f.Partition)
		s.Partitions[f.Partition].InFlight = false
		s.project(&f, -1)
		s.occupy(&f, -1)
		shadow = f.shadow
	}
}

// project adds to the sums of both ends what an operator will have changed when it has ended, as
// far as the descriptor does not show the change already, or subtracts the same. It must be
// subtracted before the record of the partition changes, and added again afterwards.
//
// INVARIANT: a move counts at both ends from the moment it is proposed. Otherwise the next step
// would see the same imbalance, and move the same amount again.
func (s *State) project(f *InFlight, sign int64) { projectOn(s, s.Nodes, f, sign) }

// projectOn is project for the sums of any nodes.
func projectOn(s *State, nodes []Node, f *InFlight, sign int64) {
	p := &s.Partitions[f.Partition]
	adds, removes := f.Add != NoNode, false
	for _, r := range s.Replicas(p) {
		adds = adds && r.Node != f.Add
		removes = removes || r.Node == f.Remove
	}
	if adds {
		nodes[f.Add].hold(p, sign)
		nodes[f.Add].Pending += sign * p.Bytes
	}
	if removes {
		nodes[f.Remove].hold(p, -sign)
		nodes[f.Remove].Pending -= sign * p.Bytes
	}
	if f.Lead != NoNode && p.Leads != NoNode && f.Lead != p.Leads {
		nodes[p.Leads].lead(p, -sign)
		nodes[f.Lead].lead(p, sign)
	}
}

// occupy counts an operator for the limits of nodes, zones and regions, or takes it out of them.
func (s *State) occupy(f *InFlight, sign int) {
	if f.Add != NoNode || f.Remove != NoNode || f.Lead != NoNode || f.Resizes {
		s.Working += sign
	}
	if f.Resizes {
		s.Resizing += sign
		if f.Sender != NoNode {
			s.Nodes[f.Sender].Resizing += sign
		}
	}
	if f.Add != NoNode {
		n := &s.Nodes[f.Add]
		n.Receiving += sign
		s.Zones[n.Zone].Receiving += sign
		s.Regions[n.Region].Receiving += sign
		if f.Sender != NoNode {
			m := &s.Nodes[f.Sender]
			m.Sending += sign
			s.Zones[m.Zone].Sending += sign
			s.Regions[m.Region].Sending += sign
		}
	} else if f.Lead != NoNode {
		s.Nodes[f.Lead].Transfers += sign
	}
}
