package planner_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/explain"
	"github.com/tidemarkdb/tidemark/placement/planner/objective"
	"github.com/tidemarkdb/tidemark/placement/planner/propose"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
	"github.com/tidemarkdb/tidemark/range/keys"
	"pgregory.net/rapid"
)

// rooms are the rooms of one planner.
type rooms struct {
	state     *state.State
	objective *objective.Objective
	proposer  *propose.Proposer
	explainer *explain.Explainer
}

func newRooms(settings planner.Settings) (*rooms, error) {
	s, err := state.New(settings)
	if err != nil {
		return nil, err
	}
	o := objective.New(s)
	p := propose.New(s, o)
	return &rooms{s, o, p, explain.New(s, o, p)}, nil
}

// world is a cluster as the core knows it, in plain maps, beside the State that follows it change
// by change. It is the naive model: fresh makes a State of all of it at once.
type world struct {
	t   rapid.TB
	now time.Time
	*rooms
	nodes      map[keys.NodeID]planner.Node
	keyspaces  map[keys.KeyspaceID]planner.Keyspace
	partitions map[keys.PartitionID]planner.Partition
	inFlight   []planner.InFlight
	memory     memory
	// proposal is what the last step proposed.
	proposal planner.Proposal
	// childFirst: of what splits, the State hears of the right part first.
	childFirst bool
}

func newWorld(t rapid.TB, settings planner.Settings) *world {
	w := &world{t: t, now: time.Unix(1_700_000_000, 0), nodes: map[keys.NodeID]planner.Node{},
		keyspaces:  map[keys.KeyspaceID]planner.Keyspace{},
		partitions: map[keys.PartitionID]planner.Partition{}, memory: newMemory()}
	var err error
	w.rooms, err = newRooms(settings)
	w.must(err)
	return w
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Helper()
		w.t.Fatal(err)
	}
}

func (w *world) setNode(n planner.Node) error {
	err := w.state.SetNode(n)
	if err == nil {
		w.nodes[n.ID] = n
	}
	return err
}

func (w *world) setKeyspace(k planner.Keyspace) error {
	err := w.state.SetKeyspace(k)
	if err == nil {
		w.keyspaces[k.ID] = k
	}
	return err
}

func (w *world) setPartition(p planner.Partition) error {
	p.Replicas = slices.Clone(p.Replicas)
	err := w.state.SetPartition(p)
	if err == nil {
		w.partitions[p.ID] = w.remember(p)
	}
	return err
}

func (w *world) removePartition(id keys.PartitionID) {
	w.state.RemovePartition(id)
	delete(w.partitions, id)
	delete(w.memory.shares, id)
	delete(w.memory.merged, id)
}

// step plans, checks what must hold for every plan, and begins all that is proposed.
func (w *world) step() planner.Proposal {
	w.t.Helper()
	proposal := w.proposer.Step(w.now, w.inFlight)
	w.proposal = proposal
	for _, op := range proposal.Operators {
		w.check(op)
		w.inFlight = append(w.inFlight, op.InFlight())
	}
	return proposal
}

// check holds an operator against the partition that it is for.
func (w *world) check(op planner.Operator) {
	w.t.Helper()
	p := w.partitions[op.Partition]
	if op.After.Compare(op.Before) >= 0 {
		w.t.Fatalf("%s: score %s is not better than %s", op.Title(), op.After, op.Before)
	}
	for _, f := range w.inFlight {
		if f.Partition == op.Partition {
			w.t.Fatalf("%s: there is one in flight: %+v", op.Title(), f)
		}
	}
	if cause := op.Reason.Cause; cause >= planner.DiskFilling || cause == planner.SharedZone ||
		cause == planner.SharedRegion {
		pause := w.state.Settings().Pause
		if !p.Ended.IsZero() && w.now.Sub(p.Ended) < pause {
			w.t.Fatalf("%s: the last operator ended %s ago, the pause is %s", op.Title(),
				w.now.Sub(p.Ended), pause)
		}
	}
	if op.Kind == planner.Split || op.Kind == planner.Merge {
		w.checkResize(op)
	}
	at := p.Epoch
	for _, step := range op.Steps {
		if step.Epoch != at {
			w.t.Fatalf("%s: step %s, but the epoch is %s then", op.Title(), step, at)
		}
		if step.Action != planner.TransferLeader {
			at.Membership++
		}
	}
	if op.Add != 0 && op.Kind != planner.Finish {
		n := w.nodes[op.Add]
		if !n.Alive || n.Status != planner.Active {
			w.t.Fatalf("%s: %s is %s, alive %v", op.Title(), op.Add, n.Status, n.Alive)
		}
	}
}

// finish carries an operator out at once.
func (w *world) finish(op planner.Operator) {
	w.t.Helper()
	p, ok := w.partitions[op.Partition]
	if !ok {
		return
	}
	switch op.Kind {
	case planner.Split:
		w.split(op)
		return
	case planner.Merge:
		w.merge(op)
		return
	}
	p.Replicas = slices.Clone(p.Replicas)
	p.Replicas = slices.DeleteFunc(p.Replicas, func(r planner.Replica) bool {
		return r.Node == op.Remove || op.Kind == planner.Finish && r.Role == planner.Outgoing
	})
	for i := range p.Replicas {
		if r := &p.Replicas[i]; r.Node == op.Add ||
			op.Kind == planner.Finish && r.Role == planner.Incoming {
			r.Role = planner.Voter
		}
	}
	if op.Add != 0 && !slices.ContainsFunc(p.Replicas, func(r planner.Replica) bool {
		return r.Node == op.Add
	}) {
		p.Replicas = append(p.Replicas, planner.Replica{Node: op.Add})
	}
	if op.Lead != 0 {
		p.Leader, p.Wanted = op.Lead, op.Lead
	}
	for _, step := range op.Steps {
		if step.Action != planner.TransferLeader {
			p.Epoch.Membership++
		}
	}
	p.Ended = w.now
	w.must(w.setPartition(p))
}

// fresh is a State of everything at once. What has split off is told before its parent, so that it
// inherits nothing: its part is in the world already.
func (w *world) fresh() *rooms {
	out, err := newRooms(*w.state.Settings())
	w.must(err)
	s := out.state
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(w.partitions))) {
		w.must(s.SetPartition(w.partitions[id]))
	}
	for _, id := range slices.Sorted(maps.Keys(w.keyspaces)) {
		w.must(s.SetKeyspace(w.keyspaces[id]))
	}
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(w.nodes))) {
		w.must(s.SetNode(w.nodes[id]))
	}
	w.recall(s)
	return out
}

// table shows what is on each node.
func (w *world) table() string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(w.nodes)) {
		n := &w.state.Nodes[w.state.NodeIndex(id)]
		fmt.Fprintf(&b, "%s: %d replicas, %d leaders, %d MiB, %s\n", id, n.Sum[planner.ByCount],
			n.Sum[planner.ByLeaders], n.Sum[planner.ByBytes]>>20, planner.Cores(n.Sum[planner.ByLoad]))
	}
	return b.String()
}
