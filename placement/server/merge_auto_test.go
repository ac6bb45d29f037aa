package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// boundaries has keyspace x split in rounds, each of its parts once, as it does by itself.
func (f *fleet) boundaries(rounds int) {
	f.t.Helper()
	for round := range rounds {
		step := 1 << (rounds - round)
		for at := step / 2; at < 1<<rounds; at += step {
			f.split("x", fmt.Sprintf("k%03d", at))
		}
		f.await(time.Minute, "all have split", f.idle)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.parts {
		p.d = proto.Clone(p.d).(*clusterpb.Partition)
		p.d.BoundaryAsked = false
		p.d.Membership++
		p.bytes = 1 << 20
	}
}

// What has shrunk to little comes together by itself, in a few rounds: not before ten quiet
// minutes, and then quickly. Its replicas are brought to the same nodes. A boundary that was asked
// for stays, and so does what no keyspace has by itself.
func TestWhatHasShrunkMerges(t *testing.T) {
	inFleet(t, []string{"", "", "", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(ranged("x"))
		f.boundaries(5)
		time.Sleep(5 * time.Minute) // virtual
		f.awaitWhole(time.Minute, "all is well", func() bool { return f.asTable("x") })
		if n := len(partitionsIn(t, f.client, "x")); n != 32 {
			t.Fatalf("%d partitions after five minutes", n)
		}
		f.await(30*time.Minute, "it is down to one", func() bool {
			if wrong := f.whole(); wrong != "" {
				t.Fatal(wrong)
			}
			return f.idle() && len(partitionsIn(t, f.client, "x")) == 1
		})
		aligned, merged := 0, 0
		for _, e := range events(t, f) {
			if e.Kind == "merge" && e.Outcome == "done" &&
				strings.Contains(e.Reason, "both have been calm") {
				merged++
			}
			if strings.Contains(e.Reason, "it is to be merged with") {
				aligned++
			}
		}
		if merged != 31 {
			t.Errorf("%d merges", merged)
		}
		t.Logf("%d moves for %d merges", aligned, merged)
	})
}

// Boundaries that were asked for are not merged away by themselves, and it is said why.
func TestWhatWasAskedForStays(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(ranged("x", "m"))
		f.split("x", "f")
		f.mu.Lock()
		for _, p := range f.parts {
			p.bytes = 1 << 20
		}
		f.mu.Unlock()
		time.Sleep(40 * time.Minute) // virtual
		if n := len(partitionsIn(t, f.client, "x")); n != 3 {
			t.Fatalf("%d partitions", n)
		}
		why, err := f.client.Why(t.Context(), &clusterpb.WhyRequest{Partition: 100})
		if err != nil || !strings.Contains(why.Text, "was asked for") {
			t.Errorf("why: %v, %v", why, err)
		}
	})
}

// The pause before merges can be set, and holds at once.
func TestThePauseBeforeMerges(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(ranged("x"))
		pause := uint64(30_000)
		r, err := f.client.SetPlacement(t.Context(), &clusterpb.SetPlacementRequest{
			Change: &clusterpb.PlacementSettings{MergePauseMillis: &pause}})
		if err != nil || r.Settings.GetMergePauseMillis() != pause {
			t.Fatalf("%v, %v", r, err)
		}
		low := uint64(10)
		if _, err := f.client.SetPlacement(t.Context(), &clusterpb.SetPlacementRequest{
			Change: &clusterpb.PlacementSettings{MergePauseMillis: &low}}); err == nil ||
			!strings.Contains(err.Error(), "pause before merges") {
			t.Errorf("10 ms: %v", err)
		}
		f.boundaries(2)
		f.awaitWhole(4*time.Minute, "all have merged", func() bool {
			return f.idle() && len(partitionsIn(t, f.client, "x")) == 1
		})
	})
}

// A merge that was proposed is begun only if both are as the planner knew them.
func TestAProposedMerge(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(ranged("x", "m"))
		f.await(time.Minute, "all is well", f.settled)
		s := c.members[0].server
		propose := func(left, right uint64, epochs ...uint64) bool {
			t.Helper()
			o, _, err := s.operators.Proposed(s.config.Store.Stale(), proposalOf(left, right, epochs...))
			if err != nil {
				t.Fatal(err)
			}
			return o != nil
		}
		for _, wrong := range [][]uint64{{2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 1}, {1, 1, 1, 2}} {
			if propose(100, 101, wrong...) {
				t.Errorf("epochs %v", wrong)
			}
		}
		if propose(101, 100, 1, 1, 1, 1) || propose(100, 999, 1, 1, 1, 1) ||
			!propose(100, 101, 1, 1, 1, 1) {
			t.Error("the neighbours are not looked at")
		}
		// One whose replicas have moved away is not begun.
		f.mu.Lock()
		d := proto.Clone(f.parts[101].d).(*clusterpb.Partition)
		i := slices.IndexFunc(d.Replicas, func(r *clusterpb.Replica) bool {
			return r.Node != f.parts[101].leader
		})
		d.Replicas[i].Role = clusterpb.ReplicaRole_LEARNER
		d.Membership = 2
		f.parts[101].d = d
		f.mu.Unlock()
		time.Sleep(5 * time.Second) // virtual
		if propose(100, 101, 1, 1, 1, 2) {
			t.Error("a learner does not matter")
		}
	})
}
