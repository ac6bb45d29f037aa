package planner

import "github.com/tidemarkdb/tidemark/range/keys"

// flight is a Flight with indices.
type flight struct {
	partition uint32
	// gone: the partition is no longer there.
	gone              bool
	add, remove, lead uint16
	// sender is the node that sends the snapshot.
	sender uint16
	// resizes: the partition splits or merges, under the lead of the sender.
	resizes bool
	// shadow: it is only left alone, for the flight before.
	shadow bool
}

// setFlights replaces what is in flight. A partition whose operator is no longer there is looked at
// again: it may have ended without success.
func (s *State) setFlights(list []Flight) {
	before := s.flights
	for i := range before {
		if f := &before[i]; !f.gone {
			s.project(f, -1)
			s.partitions[f.partition].flying = false
		}
		s.occupy(&before[i], -1)
	}
	s.flights = make([]flight, 0, len(list))
	clear(s.flightOf)
	for _, in := range list {
		i, ok := s.partitionIndex[in.Partition]
		if !ok {
			continue
		}
		if _, twice := s.flightOf[i]; !twice {
			s.launch(s.flightFor(in))
		}
		// What is merged into it is left alone as well.
		if in.Right != 0 {
			s.shadow(in.Right)
		}
	}
	for i := range before {
		if f := &before[i]; !f.gone && !s.partitions[f.partition].flying {
			s.touch(f.partition)
		}
	}
}

// launch counts an operator as done.
func (s *State) launch(f flight) {
	s.flightOf[f.partition] = len(s.flights)
	s.partitions[f.partition].flying = true
	s.flights = append(s.flights, f)
	s.project(&f, 1)
	s.occupy(&f, 1)
}

// shadow has a partition that is merged into another one left alone.
func (s *State) shadow(id keys.PartitionID) {
	i, ok := s.partitionIndex[id]
	if _, twice := s.flightOf[i]; ok && !twice {
		f := s.flightFor(Flight{Partition: id})
		f.shadow = true
		s.launch(f)
	}
}

// withdraw takes back the last operator.
func (s *State) withdraw() {
	for s.withdrawOne() {
	}
}

// withdrawOne takes back the last launch, and says whether another one belongs to it.
func (s *State) withdrawOne() bool {
	last := len(s.flights) - 1
	f := s.flights[last]
	s.flights = s.flights[:last]
	delete(s.flightOf, f.partition)
	s.partitions[f.partition].flying = false
	s.project(&f, -1)
	s.occupy(&f, -1)
	return f.shadow
}

// project adds to the sums of both ends what a flight will have changed when it has ended, beyond
// what the descriptor shows already, or takes that out. It must be taken out before the descriptor
// changes, and added again afterwards.
//
// INVARIANT: a move counts at both ends from the moment it is proposed. Otherwise the next step
// sees the same imbalance, and moves the same amount again.
func (s *State) project(f *flight, sign int64) {
	p := &s.partitions[f.partition]
	adds, removes := f.add != noNode, false
	for _, r := range s.replicas(p) {
		adds = adds && r.node != f.add
		removes = removes || r.node == f.remove
	}
	if adds {
		s.shift(p, f.add, sign)
	}
	if removes {
		s.shift(p, f.remove, -sign)
	}
	if f.lead != noNode && p.leads != noNode && f.lead != p.leads {
		s.accountLeader(p, p.leads, -sign)
		s.accountLeader(p, f.lead, sign)
	}
}

func (s *State) shift(p *partition, node uint16, sign int64) {
	n := &s.nodes[node]
	n.sum[byBytes] += sign * p.bytes
	n.pending += sign * p.bytes
	n.sum[byLoad] += sign * int64(p.followerLoad)
	n.sum[byCount] += sign
}

// occupy counts a flight for the limits.
func (s *State) occupy(f *flight, sign int) {
	if f.add != noNode || f.remove != noNode || f.lead != noNode || f.resizes {
		s.working += sign
	}
	if f.resizes {
		s.splitting += sign
		if f.sender != noNode {
			s.nodes[f.sender].splitting += sign
		}
	}
	if f.add != noNode {
		n := &s.nodes[f.add]
		n.receiving += sign
		s.zones[n.zone].receiving += sign
		s.regions[n.region].receiving += sign
		if f.sender != noNode {
			m := &s.nodes[f.sender]
			m.sending += sign
			s.zones[m.zone].sending += sign
			s.regions[m.region].sending += sign
		}
	} else if f.lead != noNode {
		s.nodes[f.lead].transfers += sign
	}
}
