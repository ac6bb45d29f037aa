package planner_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/explain"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// cluster is a world of n settled nodes, each in its own zone if zones is set.
func cluster(t *testing.T, n int, settings planner.Settings) *world {
	t.Helper()
	w := newWorld(t, settings)
	for i := range n {
		w.must(w.setNode(planner.Node{ID: keys.NodeID(i + 1), Zone: string(rune('a' + i)), Alive: true,
			Since: w.now.Add(-time.Hour), Processors: planner.Core}))
	}
	w.must(w.setKeyspace(planner.Keyspace{ID: 1, Name: "a", Replicas: 3}))
	return w
}

func on(id keys.PartitionID, nodes ...keys.NodeID) planner.Partition {
	p := planner.Partition{ID: id, Keyspace: 1, Epoch: planner.Epoch{3, 7}, Measured: time.Hour,
		Bytes: 1 << 20, Leader: nodes[0], Wanted: nodes[0]}
	for _, n := range nodes {
		p.Replicas = append(p.Replicas, planner.Replica{Node: n})
	}
	return p
}

// A leader that has just taken over has measured nothing yet: the load is what was known before,
// or a hot partition would look cold wherever it comes, and be sent on.
func TestLoadOutlivesLeader(t *testing.T) {
	w := cluster(t, 3, planner.Settings{})
	p := on(1, 1, 2, 3)
	p.LeaderLoad = planner.Core
	w.must(w.setPartition(p))
	w.step()
	p.Leader, p.Wanted, p.LeaderLoad, p.Measured = 2, 2, 0, 10*time.Second
	w.must(w.setPartition(p))
	w.step()
	if got := w.state.Nodes[w.state.NodeIndex(2)].Sum[planner.ByLoad]; got != int64(planner.Core) {
		t.Errorf("load %s after a transfer, want %s", planner.Cores(got), planner.Core)
	}
	p.Measured = time.Minute
	w.must(w.setPartition(p))
	if got := w.state.Nodes[w.state.NodeIndex(2)].Sum[planner.ByLoad]; got != 0 {
		t.Errorf("load %s when the new leader has measured for a minute, want what it says",
			planner.Cores(got))
	}
}

// What an operator in flight has done already is not counted twice.
func TestProjectionIsWhatIsLeft(t *testing.T) {
	w := cluster(t, 4, planner.Settings{})
	p := on(1, 1, 2, 3)
	w.must(w.setPartition(p))
	inFlight := []planner.InFlight{{Partition: 1, Add: 4, Remove: 1, Lead: 2}}
	bytes := func() (out [4]int64) {
		for i := range out {
			out[i] = w.state.Nodes[w.state.NodeIndex(keys.NodeID(i+1))].Sum[planner.ByBytes]
		}
		return out
	}
	want := [4]int64{0, 1 << 20, 1 << 20, 1 << 20}
	for _, replicas := range [][]planner.Replica{
		{{Node: 1}, {Node: 2}, {Node: 3}},
		{{Node: 1}, {Node: 2}, {Node: 3}, {Node: 4, Role: planner.Learner}},
		{{Node: 1, Role: planner.Outgoing}, {Node: 2}, {Node: 3}, {Node: 4, Role: planner.Incoming}},
		{{Node: 2}, {Node: 3}, {Node: 4}},
	} {
		p.Replicas = replicas
		p.Epoch.Membership++
		w.must(w.setPartition(p))
		w.proposer.Step(w.now, inFlight)
		if got := bytes(); got != want {
			t.Errorf("with %v: bytes %v, want %v", replicas, got, want)
		}
	}
	w.proposer.Step(w.now, nil)
	if got := bytes(); got != want {
		t.Errorf("when it has ended: bytes %v, want %v", got, want)
	}
}

// Paused, it proposes nothing, says so, and goes on where it was.
func TestPaused(t *testing.T) {
	w := cluster(t, 4, planner.Settings{Paused: true})
	w.must(w.setPartition(on(1, 1, 2)))
	proposal := w.step()
	if len(proposal.Operators) != 0 || proposal.Waiting != 1 {
		t.Fatalf("paused: %s", show(proposal))
	}
	why, err := w.explainer.Partition(1)
	if err != nil || !strings.Contains(why.Verdict, explain.PausedText) {
		t.Fatalf("%v, %v", why, err)
	}
	// Nor is what is lost replaced.
	w.must(w.setPartition(on(2, 1, 2, 3)))
	w.must(w.setNode(planner.Node{ID: 3, Status: planner.Gone}))
	if proposal := w.step(); len(proposal.Operators) != 0 || proposal.Waiting != 2 {
		t.Fatalf("paused, and a node is lost: %s", show(proposal))
	}
	// A node that is to lead or hold nothing says what that waits for.
	node := planner.Node{ID: 1, Zone: "a", Alive: true, Since: w.now.Add(-time.Hour),
		Processors: planner.Core}
	for _, status := range []planner.Status{planner.Draining, planner.Moving} {
		node.Status = status
		w.must(w.setNode(node))
		w.step()
		why, err := w.explainer.Node(1)
		if err != nil || why.InTheWay != explain.PausedText ||
			!strings.Contains(why.String(), explain.PausedText) {
			t.Errorf("paused, node 1 is %s: %v, %v", status, why, err)
		}
	}
	node.Status = planner.Active
	w.must(w.setNode(node))
	w.step()
	settings := *w.state.Settings()
	settings.Paused = false
	w.must(w.state.SetSettings(settings))
	if why, err := w.explainer.Node(1); err != nil || strings.Contains(why.String(), "paused") {
		t.Errorf("no longer paused: %v, %v", why, err)
	}
	if proposal := w.step(); len(proposal.Operators) != 2 {
		t.Fatalf("no longer paused: %s", show(proposal))
	}
}

// What is wrong in itself is refused, and changes nothing.
func TestRefused(t *testing.T) {
	w := cluster(t, 3, planner.Settings{})
	for name, err := range map[string]error{
		"a node without an id":     w.state.SetNode(planner.Node{}),
		"a node with less than no": w.state.SetNode(planner.Node{ID: 9, DiskUsed: -1}),
		"a factor of 0":            w.state.SetKeyspace(planner.Keyspace{ID: 2}),
		"two replicas on a node":   w.state.SetPartition(on(1, 2, 2)),
		"negative bytes": w.state.SetPartition(planner.Partition{ID: 1, Keyspace: 1,
			Bytes: -1}),
		"a node that is in use": func() error {
			w.must(w.setPartition(on(1, 1, 2, 3)))
			return w.state.RemoveNode(2)
		}(),
		"a tolerance above 1": w.state.SetSettings(planner.Settings{Tolerance: 2}),
		"a mark above 1":      w.state.SetSettings(planner.Settings{DiskFull: 1.5}),
	} {
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	for _, id := range []keys.NodeID{7, 9} {
		if err := w.state.RemoveNode(id); err != nil {
			t.Errorf("removing %s, which is not there: %v", id, err)
		}
	}
	w.removePartition(1)
	if err := w.state.RemoveNode(2); err != nil {
		t.Error(err)
	}
	if _, err := w.explainer.Partition(1); err == nil {
		t.Error("a partition that is gone is explained")
	}
	if _, err := w.explainer.Node(2); err == nil {
		t.Error("a node that is gone is explained")
	}
	if _, err := w.explainer.Keyspace(7); err == nil {
		t.Error("a keyspace that is not there is explained")
	}
}

// Names, not numbers, are what is written as JSON.
func TestJSON(t *testing.T) {
	w := cluster(t, 4, planner.Settings{})
	w.must(w.setPartition(on(1, 1, 2)))
	op := w.step().Operators[0]
	encoded, err := json.Marshal(op)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"Kind":"add replica"`, `"Cause":"too few replicas"`,
		`"Action":"enter joint"`, `"Epoch":"3.7"`, `"quorum":1`, `"Rejected":{"Node":4`} {
		if !strings.Contains(string(encoded), part) {
			t.Errorf("%s lacks %s", encoded, part)
		}
	}
}

// Keyspaces that are gone take no room: more of them come and go than there may be at a time.
func TestKeyspacesComeAndGo(t *testing.T) {
	w := cluster(t, 3, planner.Settings{})
	for i := range 70_000 {
		id := keys.KeyspaceID(i + 2)
		w.must(w.setKeyspace(planner.Keyspace{ID: id, Name: "b", Replicas: 3}))
		p := on(keys.PartitionID(i+1), 1, 2, 3)
		p.Keyspace = id
		w.must(w.setPartition(p))
		if i%2 == 0 { // in either order
			w.removePartition(p.ID)
			w.state.RemoveKeyspace(id)
		} else {
			w.state.RemoveKeyspace(id)
			w.removePartition(p.ID)
		}
	}
	if n := len(w.state.Keyspaces); n > 2 {
		t.Errorf("%d keyspaces are remembered, there is one", n)
	}
}

// What is on nodes that are being decommissioned already needs room too.
func TestRoomForAllThatMoves(t *testing.T) {
	w := cluster(t, 5, planner.Settings{Paused: true})
	for i := range 5 {
		n := w.nodes[keys.NodeID(i+1)]
		n.DiskUsed, n.DiskCapacity = 0, 100<<30
		w.must(w.setNode(n))
	}
	for i := range 10 {
		p := on(keys.PartitionID(i+1), 1, 2, 3)
		p.Bytes = 8 << 30
		if i >= 5 {
			p = on(keys.PartitionID(i+1), 3, 4, 5)
			p.Bytes = 12 << 30
		}
		w.must(w.setPartition(p))
	}
	w.step()
	if o := w.explainer.CanRemove(1); len(o) != 0 {
		t.Fatalf("node 1: %v", o)
	}
	n := w.nodes[1]
	n.Status = planner.Moving
	w.must(w.setNode(n))
	if both, one := w.explainer.CanRemove(1, 2), w.explainer.CanRemove(2); len(both) != 1 ||
		len(one) != 1 || both[0].Text != one[0].Text {
		t.Errorf("node 2 beside it: %v; both together: %v", one, both)
	}
}

// An operator that was cancelled and cannot end keeps its partition from being changed, and no
// other.
func TestWhatIsCancelledHoldsNoLimit(t *testing.T) {
	w := cluster(t, 4, planner.Settings{MaxOperators: 1})
	p := on(2, 1, 2, 3)
	p.Replicas[0].Damage = planner.Broken
	w.must(w.setPartition(on(1, 1, 2, 3)))
	w.must(w.setPartition(p))
	ops := w.proposer.Step(w.now, []planner.InFlight{{Partition: 1, Add: 4, Remove: 1}}).Operators
	if len(ops) != 0 {
		t.Errorf("beyond the limit: %v", ops)
	}
	if ops := w.proposer.Step(w.now, []planner.InFlight{{Partition: 1}}).Operators; len(ops) != 1 ||
		ops[0].Partition != 2 {
		t.Errorf("beside one that was cancelled: %v", ops)
	}
}
