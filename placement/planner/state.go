package planner

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// State is everything the planner knows. It is kept in arrays with small indices, so that a
// million partitions are a hundred or so megabytes without pointers, and the sums of each node are
// kept up to date with every change. All sums are of integers, so that they do not depend on the
// order of changes.
//
// Methods that set something mark what has to be looked at again; Step looks at that only. A State
// is not safe for use by several goroutines.
type State struct {
	settings Settings

	nodes     []nodeState
	nodeIndex map[keys.NodeID]uint16
	zones     []location
	zoneIndex map[[2]string]uint16
	regions   []location
	regionAt  map[string]uint16

	keyspaces       []keyspaceState
	keyspaceIndex   map[keys.KeyspaceID]uint16
	unusedKeyspaces []uint16 // free places in keyspaces

	partitions     []partition
	growths        []growth // of partitions, by the same index
	hints          hints
	merged         map[uint32]merged   // of those that have merged, by the same index
	newEnds        map[uint32]struct{} // of ascending keys, with some that were
	partitionIndex map[keys.PartitionID]uint32
	unused         []uint32 // free places in partitions
	arena          arena

	changes Changes
	// marks has the findings of the last step, by the index of the partition; waiting has what is
	// wrong and not in flight; stuck what nothing can be done about until some node changes.
	marks    []mark
	waiting  queues
	stuck    []uint32
	flights  []flight
	flightOf map[uint32]int
	// working is how many of the flights change something: those that were cancelled do not.
	working int
	// splitting is how many of them are splits and merges.
	splitting int
	// searches and scans count what a step has done, for its limits.
	searches, visits, scans, probes int
	// standings is space for sorting nodes.
	standings []float64
	// full remembers for one step where no place is free.
	full map[surroundings]bool

	// means of the open nodes, by dimension, as of the last step.
	mean [dimensions]average
	// loadTells: a tenth of the mean load is more than what is never worth a move.
	loadTells bool
	// barren is when a search for balance last found nothing, by level.
	barren [levels]time.Time
	// now is the time of the last step; openZones and openRegions had a node open then.
	now                    time.Time
	openZones, openRegions int
}

// noNode is the index of no node.
const noNode = ^uint16(0)

// noReplica is the index of no replica.
const noReplica = int8(-1)

// nodeState is a node and what is on it.
type nodeState struct {
	info Node
	// known: SetNode was called. A node that only a descriptor names is neither live nor lost.
	known        bool
	cond         condition
	zone, region uint16
	// list has the partitions with a replica here, in no order.
	list []uint32
	// sum of what is here by descriptors, with what is in flight counted as done.
	sum [dimensions]int64
	// other is what the disk holds beside the replicas, in bytes, as of the node's last report.
	other int64
	// reported: SetNode was called since the last step.
	reported bool
	// pending is the part of the sum of bytes that is in flight: it arrives if positive.
	pending int64
	// receiving and sending are snapshots, transfers leaderships, all in flight.
	receiving, sending, transfers int
	// splitting is how many partitions split or merge that it leads.
	splitting int
}

// location is a zone or a region.
type location struct {
	region, name string
	// open is how many nodes there are open.
	open               int
	receiving, sending int
}

type keyspaceState struct {
	info  Keyspace
	known bool
	// partitions is how many there are.
	partitions int
	// masks of the rules, by node, and whether a node is preferred for leaders. Empty if the
	// keyspace wants nothing of the kind.
	masks     []ruleMask
	preferred []bool
}

// partition is a Partition in 64 bytes.
type partition struct {
	id                       keys.PartitionID
	epoch                    Epoch
	bytes                    int64
	leaderLoad, followerLoad uint32
	ended                    uint32 // Unix seconds
	first                    uint32 // of its replicas in the arena
	keyspace                 uint16
	leader, wanted           uint16
	// leads is where the leader is or, if it is going there, where it is wanted: the sums count
	// that.
	leads uint16
	count uint8
	// changed: it is listed in the changes. flying: it has an operator in flight.
	changed, flying bool
}

// replica is a Replica in 8 bytes.
type replica struct {
	node   uint16
	role   Role
	damage Damage
	at     uint32 // in the list of its node
}

// NewState returns an empty State. Settings that are zero are set to their defaults.
func NewState(settings Settings) (*State, error) {
	s := &State{
		nodeIndex:      map[keys.NodeID]uint16{},
		zoneIndex:      map[[2]string]uint16{},
		regionAt:       map[string]uint16{},
		keyspaceIndex:  map[keys.KeyspaceID]uint16{},
		partitionIndex: map[keys.PartitionID]uint32{},
		flightOf:       map[uint32]int{},
		merged:         map[uint32]merged{},
		newEnds:        map[uint32]struct{}{},
		full:           map[surroundings]bool{},
	}
	return s, s.SetSettings(settings)
}

// Settings returns the settings, complete.
func (s *State) Settings() Settings { return s.settings }

// SetSettings changes the settings. Everything is looked at again in the next step, except where
// only Paused changed.
func (s *State) SetSettings(settings Settings) error {
	settings.EnsureDefaults()
	if err := settings.Validate(); err != nil {
		return err
	}
	before := s.settings
	s.settings = settings
	if before.Paused = settings.Paused; before != settings {
		s.touchAll()
	}
	return nil
}

func (s *State) id(n uint16) keys.NodeID {
	if n == noNode {
		return 0
	}
	return s.nodes[n].info.ID
}

// seconds is a time as it is kept for each partition; 0 is never.
func seconds(t time.Time) uint32 {
	if t.IsZero() {
		return 0
	}
	return uint32(max(1, min(t.Unix(), 1<<32-1)))
}

// paused says whether the pause after the last operator on a partition is not over.
func (s *State) paused(p *partition) bool {
	return p.ended != 0 && s.now.Unix()-int64(p.ended) < int64(s.settings.Pause/time.Second)
}

// Partitions returns how many partitions there are.
func (s *State) Partitions() int { return len(s.partitionIndex) }

func (s *State) touch(i uint32) {
	if p := &s.partitions[i]; !p.changed {
		p.changed = true
		s.changes.Partitions = append(s.changes.Partitions, i)
	}
}

func (s *State) touchAll() {
	for i := range s.partitions {
		if s.partitions[i].id != 0 {
			s.touch(uint32(i))
		}
	}
}

// SetKeyspace adds a keyspace or changes it. All its partitions are looked at again if it changed.
func (s *State) SetKeyspace(k Keyspace) error {
	if err := k.validate(); err != nil {
		return err
	}
	k.ensureDefaults()
	i, err := s.keyspaceAt(k.ID)
	if err != nil {
		return err
	}
	ks := &s.keyspaces[i]
	before := ks.info
	was := ks.known
	ks.info, ks.known = k, true
	s.maskAll(ks)
	if was && before.Replicas == k.Replicas && before.Rules.String() == k.Rules.String() &&
		before.Leaders.String() == k.Leaders.String() && before.SplitSize == k.SplitSize &&
		before.MergeSize == k.MergeSize && before.NoAuto == k.NoAuto {
		return nil
	}
	for j := range s.partitions {
		if p := &s.partitions[j]; p.id != 0 && p.keyspace == i {
			s.touch(uint32(j))
		}
	}
	s.changes.Keyspaces = true
	return nil
}

// RemoveKeyspace forgets a keyspace. Partitions of it that are still there are left alone.
func (s *State) RemoveKeyspace(id keys.KeyspaceID) {
	if i, ok := s.keyspaceIndex[id]; ok {
		s.keyspaces[i] = keyspaceState{info: Keyspace{ID: id}, partitions: s.keyspaces[i].partitions}
		s.releaseKeyspace(i)
	}
}

// releaseKeyspace gives up the place of a keyspace that is not known and has no partition.
func (s *State) releaseKeyspace(i uint16) {
	ks := &s.keyspaces[i]
	if ks.known || ks.partitions > 0 || ks.info.ID == 0 {
		return
	}
	delete(s.keyspaceIndex, ks.info.ID)
	*ks = keyspaceState{}
	s.unusedKeyspaces = append(s.unusedKeyspaces, i)
}

func (s *State) keyspaceAt(id keys.KeyspaceID) (uint16, error) {
	i, ok := s.keyspaceIndex[id]
	if n := len(s.unusedKeyspaces); !ok && n > 0 {
		i, s.unusedKeyspaces = s.unusedKeyspaces[n-1], s.unusedKeyspaces[:n-1]
		s.keyspaceIndex[id] = i
		s.keyspaces[i] = keyspaceState{info: Keyspace{ID: id}}
		return i, nil
	}
	if !ok {
		if len(s.keyspaces) >= 1<<16-1 {
			return 0, fmt.Errorf("more than %d keyspaces", len(s.keyspaces))
		}
		i = uint16(len(s.keyspaces))
		s.keyspaceIndex[id] = i
		s.keyspaces = append(s.keyspaces, keyspaceState{info: Keyspace{ID: id}})
	}
	return i, nil
}

// maskAll matches all nodes to what a keyspace wants.
func (s *State) maskAll(ks *keyspaceState) {
	ks.masks, ks.preferred = ks.masks[:0], ks.preferred[:0]
	for i := range s.nodes {
		s.maskOne(ks, i)
	}
}

// maskOne matches one node, and says whether that changed what is known.
func (s *State) maskOne(ks *keyspaceState, i int) (changed bool) {
	n := s.nodes[i].info.Labels()
	if len(ks.info.Rules) > 0 {
		ks.masks = resized(ks.masks, len(s.nodes))
		m := ks.info.Rules.mask(n)
		changed = ks.masks[i] != m
		ks.masks[i] = m
	}
	if len(ks.info.Leaders) > 0 {
		ks.preferred = resized(ks.preferred, len(s.nodes))
		m := ks.info.Leaders.Match(n)
		changed = changed || ks.preferred[i] != m
		ks.preferred[i] = m
	}
	return changed
}

func resized[T any](list []T, n int) []T {
	for len(list) < n {
		var zero T
		list = append(list, zero)
	}
	return list
}
