package state

import (
	"slices"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/range/keys"
)

var start = time.Unix(1_700_000_000, 0)

func newState(t *testing.T) *State {
	t.Helper()
	s, err := New(planner.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	for id := range keys.NodeID(3) {
		must(t, s.SetNode(planner.Node{ID: id + 1, Alive: true, Since: start.Add(-time.Hour)}))
	}
	must(t, s.SetKeyspace(planner.Keyspace{ID: 1, Name: "a", Replicas: 3}))
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func partition(id keys.PartitionID) planner.Partition {
	return planner.Partition{ID: id, Keyspace: 1, Leader: 1, Wanted: 1,
		Replicas: []planner.Replica{{Node: 1}, {Node: 2}, {Node: 3}}}
}

// take takes the changes as a step does.
func take(s *State) Changes {
	changes := s.TakeChanges()
	for range s.Settled(changes.Partitions) {
		continue
	}
	return changes
}

// Changes list each partition once, with those that were removed, until they are taken.
func TestChanges(t *testing.T) {
	s := newState(t)
	must(t, s.SetPartition(partition(1)))
	must(t, s.SetPartition(partition(2)))
	must(t, s.SetPartition(partition(1)))
	s.Advance(start, nil)
	first, _ := s.PartitionIndex(1)
	second, _ := s.PartitionIndex(2)
	got := take(s)
	if !slices.Equal(got.Partitions, []uint32{first, second}) || got.Removed != nil || got.Reused {
		t.Errorf("two new partitions: %+v", got)
	}
	if got := take(s); got.Partitions != nil {
		t.Errorf("nothing has changed since: %+v", got)
	}
	s.RemovePartition(1)
	must(t, s.SetPartition(partition(3)))
	third, _ := s.PartitionIndex(3)
	got = take(s)
	if third != first || !slices.Equal(got.Partitions, []uint32{third}) ||
		!slices.Equal(got.Removed, []uint32{first}) || !got.Reused {
		t.Errorf("one in the place of another: index %d, was %d; %+v", third, first, got)
	}
	must(t, s.SetNode(planner.Node{ID: 3, Since: start}))
	s.Advance(start.Add(time.Second), nil)
	if got := take(s); !got.Nodes || len(got.Partitions) != 2 {
		t.Errorf("a node does not answer: %+v", got)
	}
}

// A new tail of ascending keys is listed as changed in each step, until it is no longer new.
func TestNewTailIsForgotten(t *testing.T) {
	s := newState(t)
	tail := partition(1)
	tail.SplitFrom, tail.Resized, tail.Growth.Ascending = 1<<40, start, 900
	must(t, s.SetPartition(tail))
	for _, at := range []time.Duration{0, TailFor - time.Second, TailFor} {
		s.Advance(start.Add(at), nil)
		if got := take(s); len(got.Partitions) != 1 {
			t.Errorf("after %s: %+v", at, got)
		}
	}
	s.Advance(start.Add(TailFor+time.Second), nil)
	if got := take(s); len(got.Partitions) != 0 || len(s.tails) != 0 {
		t.Errorf("in the end: %+v, %d tails", got, len(s.tails))
	}
}
