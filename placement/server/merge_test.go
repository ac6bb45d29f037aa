package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/reports"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

func (f *fleet) merge(partition uint64) *clusterpb.MergePartitionResponse {
	f.t.Helper()
	r, err := f.client.MergePartition(f.t.Context(), &clusterpb.MergePartitionRequest{
		Partition: partition})
	if err != nil {
		f.t.Fatalf("merge %d: %v", partition, err)
	}
	return r
}

// whole says what is wrong with the table of keyspace 1.
func (f *fleet) whole() string {
	return tiled(partitionsIn(f.t, f.client, "x"), keys.PrefixSpan(keys.KeyspacePrefix(1)))
}

// awaitWhole waits for something, and sees all the while that the table has neither hole nor
// overlap.
func (f *fleet) awaitWhole(atMost time.Duration, what string, holds func() bool) {
	f.t.Helper()
	f.await(atMost, what, func() bool {
		if wrong := f.whole(); wrong != "" {
			f.t.Fatal(wrong)
		}
		return holds()
	})
}

func (f *fleet) settled() bool { return f.idle() && f.asTable("x") }

// A partition consumes its right neighbour when that is asked for, whatever the boundary was; what
// is asked for twice is done once, and what cannot be is refused.
func TestMerge(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(ranged("x", "m"))
		child := f.split("x", "f").Child
		f.await(time.Minute, "it has split", f.settled)
		f.mu.Lock()
		if !f.parts[child].d.BoundaryAsked || f.parts[101].d.BoundaryAsked {
			t.Errorf("boundaries: %v, %v", f.parts[child].d, f.parts[101].d)
		}
		f.mu.Unlock()
		refused := func(partition uint64, want string) {
			t.Helper()
			_, err := f.client.MergePartition(t.Context(), &clusterpb.MergePartitionRequest{
				Partition: partition})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("merge of %d: %v, want %s", partition, err, want)
			}
		}
		first := f.merge(child)
		if again := f.merge(child); !proto.Equal(first, again) || first.Right != 101 {
			t.Errorf("asked for twice: %v, %v", first, again)
		}
		refused(100, fmt.Sprintf("operator %d changes partition %d already", first.Operator, child))
		refused(101, "it is the last one of its keyspace")
		refused(77, "there is no partition 77")
		for _, id := range []uint64{child, 101} {
			_, err := f.client.SplitPartition(t.Context(), &clusterpb.SplitPartitionRequest{Keyspace: "x",
				Key: []byte(map[bool]string{true: "g", false: "z"}[id == child])})
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("operator %d", first.Operator)) {
				t.Errorf("a split of %d: %v", id, err)
			}
			why, err := f.client.Why(t.Context(), &clusterpb.WhyRequest{Partition: id})
			if err != nil || !strings.Contains(why.Text, fmt.Sprintf(
				"merge of partition %d with partition 101, its right neighbour", child)) {
				t.Errorf("why: %v, %v", why, err)
			}
		}
		if o := operatorsOf(t, f)[0]; o.Kind != "merge" || o.Right != 101 || o.Partition != child {
			t.Errorf("the operator is shown as %v", o)
		}
		f.awaitWhole(time.Minute, "the two have merged", f.settled)
		f.merge(100)
		f.awaitWhole(time.Minute, "all have merged", f.settled)
		table := partitionsIn(t, f.client, "x")
		if len(table) != 1 || table[0].Partition.Id != 100 || table[0].Partition.Generation != 4 {
			t.Errorf("what is left: %v", table)
		}
		if e := events(t, f)[0]; e.Kind != "merge" || e.Outcome != "done" || e.Right != child {
			t.Errorf("the event: %v", e)
		}
		if again := f.split("x", "m"); again.Child <= child {
			t.Errorf("an id is given out again: %v", again)
		}
		f.awaitWhole(time.Minute, "it has split again", f.settled)
	})
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("h", 2, 3))
		_, err := f.client.MergePartition(t.Context(), &clusterpb.MergePartitionRequest{Partition: 100})
		if err == nil || !strings.Contains(err.Error(),
			"hash number 0, and partitions of two hash numbers") {
			t.Errorf("across hash numbers: %v", err)
		}
	})
}

// Two that would be split again at once are not merged.
func TestAMergeThatWouldBeSplit(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(ranged("x", "m"))
		f.mu.Lock()
		f.parts[100].bytes, f.parts[101].bytes = 200<<20, 56<<20
		f.mu.Unlock()
		f.await(time.Minute, "the sizes are known", func() bool {
			return f.asTable("x") && partitionsIn(t, f.client, "x")[0].SizeBytes != 0
		})
		time.Sleep(10 * time.Second) // virtual
		_, err := f.client.MergePartition(t.Context(), &clusterpb.MergePartitionRequest{Partition: 100})
		if err == nil || !strings.Contains(err.Error(), "would be split again at once") {
			t.Errorf("%v", err)
		}
	})
}

// Two partitions on other nodes are brought together first, wherever their leaders are, and it is
// said what is waited for.
func TestAMergeOfPartitionsOnOtherNodes(t *testing.T) {
	for _, factor := range []uint32{1, 3} {
		for _, larger := range []uint64{100, 101} {
			t.Run(fmt.Sprintf("%d replicas, %d is larger", factor, larger), func(t *testing.T) {
				inFleet(t, []string{"", "", "", "", "", ""}, func(t *testing.T, c *core, f *fleet) {
					r := ranged("x", "m")
					r.ReplicationFactor = factor
					f.create(r)
					f.mu.Lock()
					f.parts[larger].bytes++
					f.copying = 10 * time.Second
					f.mu.Unlock()
					f.await(time.Minute, "the leaders are known", f.settled)
					time.Sleep(10 * time.Second) // virtual
					before := f.where()
					f.merge(100)
					var said []string
					f.awaitWhole(10*time.Minute, "they have merged", func() bool {
						for _, o := range operatorsOf(t, f) {
							if n := len(said); n == 0 || said[n-1] != o.Step {
								said = append(said, o.Step)
							}
						}
						return f.settled()
					})
					if now := f.where(); !slices.Equal(now[100], before[larger]) || len(now) != 1 {
						t.Errorf("before %v, now %v; partition %d was to stay", before, now, larger)
					}
					text := strings.Join(said, "\n")
					if slices.Equal(before[100], before[101]) {
						t.Fatal("both were on the same nodes")
					}
					if !strings.Contains(text, fmt.Sprintf("partition %d moves from node", 201-larger)) ||
						!strings.Contains(text, "merges it with partition 101") {
						t.Errorf("what was said:\n%s", text)
					}
				})
			})
		}
	}
}

// A merge whose partitions are led by different nodes waits for the right one to be led by the
// leader of the left one.
func TestAMergeBringsTheLeadersTogether(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(ranged("x", "m"))
		f.await(time.Minute, "all is well", func() bool { return f.settled() })
		f.mu.Lock()
		lead := f.parts[100].leader
		f.parts[101].leader = lead%3 + 1
		f.parts[101].term++
		f.mu.Unlock()
		time.Sleep(10 * time.Second) // virtual
		stay := func(stay bool) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.staying = stay
		}
		stay(true)
		f.merge(100)
		f.await(time.Minute, "it is said what is waited for", func() bool {
			return slices.ContainsFunc(operatorsOf(t, f), func(o *clusterpb.OperatorInfo) bool {
				return o.Step == fmt.Sprintf("waits for partition 101 to be led by node %d", lead)
			})
		})
		stay(false)
		f.awaitWhole(time.Minute, "they have merged", f.settled)
	})
}

// An attempt that takes too long is taken back and made again, a few times; then the merge is
// cancelled, and says why. What was frozen is seen to be, and thaws.
func TestAttemptsFail(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(ranged("x", "m"))
		f.await(time.Minute, "all is well", f.settled)
		f.mu.Lock()
		f.merging.freezing = time.Hour
		f.mu.Unlock()
		f.merge(100)
		frozen := false
		f.awaitWhole(3*time.Minute, "it is cancelled", func() bool {
			for _, p := range partitionsIn(t, f.client, "x") {
				frozen = frozen || p.Partition.Frozen.GetPartition() == 100
			}
			return f.settled()
		})
		if e := events(t, f)[0]; !strings.Contains(e.Outcome, "tried 5 times") || !frozen ||
			f.merging.attempts != steps.MergeTries {
			t.Errorf("frozen: %v, %d attempts, %v", frozen, f.merging.attempts, e)
		}
		f.mu.Lock()
		if d := f.parts[101].d; d.Frozen != nil || len(f.parts) != 2 {
			t.Errorf("it is frozen: %v", d)
		}
		f.merging.freezing = 3 * time.Second
		f.mu.Unlock()
		f.merge(100)
		f.awaitWhole(time.Minute, "they have merged", func() bool {
			return f.settled() && len(f.where()) == 1
		})
	})
}

// If a node falls while the right one is frozen, the merge is cancelled, and both are repaired.
func TestANodeFallsDuringAMerge(t *testing.T) {
	for _, leader := range []bool{false, true} {
		inFleet(t, []string{"", "", "", ""}, func(t *testing.T, c *core, f *fleet) {
			f.create(ranged("x", "m"))
			f.await(time.Minute, "all is well", f.settled)
			f.mu.Lock()
			f.merging.freezing = 4 * time.Second
			f.mu.Unlock()
			on := f.where()[100]
			if !slices.Equal(on, f.where()[101]) {
				f.mu.Lock()
				f.parts[101].d.Replicas = proto.Clone(f.parts[100].d).(*clusterpb.Partition).Replicas
				f.mu.Unlock()
			}
			f.merge(100)
			f.await(2*time.Minute, "it is frozen", func() bool {
				f.mu.Lock()
				defer f.mu.Unlock()
				return f.parts[101].d.Frozen != nil
			})
			f.mu.Lock()
			victim := f.parts[100].leader
			f.mu.Unlock()
			if !leader {
				victim = on[(slices.Index(on, victim)+1)%3]
			}
			f.kill(victim)
			f.awaitWhole(15*time.Minute, "both are repaired", func() bool {
				return f.settled() && f.sound(3) && len(f.where()) == 2
			})
			if e := events(t, f); !slices.ContainsFunc(e, func(e *clusterpb.Event) bool {
				return e.Kind == "merge" && strings.Contains(e.Outcome, "has not answered for")
			}) {
				t.Errorf("events: %v", e)
			}
		})
	}
}

// A merge that is cancelled before it was carried out leaves both partitions, in every stage; one
// that was carried out is done.
func TestAMergeIsCancelled(t *testing.T) {
	for after := range 14 {
		inFleet(t, []string{"", "", "", "", "", ""}, func(t *testing.T, c *core, f *fleet) {
			f.create(ranged("x", "m"))
			f.await(time.Minute, "all is well", f.settled)
			f.mu.Lock()
			f.merging.freezing = 4 * time.Second
			f.mu.Unlock()
			f.merge(100)
			time.Sleep(time.Duration(after) * 4 * time.Second) // virtual
			_, err := f.client.CancelOperator(t.Context(), &clusterpb.CancelOperatorRequest{
				Partition: 100 + uint64(after%2)})
			if err != nil && !strings.Contains(err.Error(), "nothing is under way") {
				t.Fatal(err)
			}
			f.awaitWhole(5*time.Minute, "it is taken back, or done", func() bool {
				return f.settled() && f.sound(3)
			})
			e := events(t, f)[0]
			if n := len(f.where()); n == 2 && e.Outcome != "cancelled: asked for" ||
				n == 1 && e.Outcome != "done" {
				t.Errorf("after %d steps: %d partitions, %v", after, n, e)
			}
		})
	}
}

// What was consumed is reported for a while by a leader that lags. That changes nothing, also if
// the partition that has consumed it splits at the same key again.
func TestTheConsumedIsReportedLate(t *testing.T) {
	for _, split := range []bool{false, true} {
		inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
			f.create(ranged("x"))
			child := f.split("x", "m").Child
			f.await(time.Minute, "it has split", f.settled)
			f.mu.Lock()
			f.merging.lags = 10 * time.Minute
			f.mu.Unlock()
			f.merge(100)
			f.awaitWhole(time.Minute, "they have merged", f.settled)
			want := 1
			if split {
				f.mu.Lock()
				f.reporting = splitReporting{whole: time.Hour, mute: 40 * time.Second}
				for i, g := range f.merging.ghosts {
					before := proto.Clone(g.d).(*clusterpb.Partition) // as it was before it froze
					before.Frozen, before.Membership = nil, before.Membership-1
					f.merging.ghosts[i].d = before
				}
				f.mu.Unlock()
				want = 2
				if r := f.split("x", "m"); r.Child == child {
					t.Fatal("its id is given out again")
				}
				f.awaitWhole(3*time.Minute, "it has split again", f.idle)
			}
			time.Sleep(time.Minute) // virtual
			f.awaitWhole(5*time.Minute, "the leaders are known", f.settled)
			for _, p := range partitionsIn(t, f.client, "x") {
				if p.Partition.Id == child {
					t.Errorf("it is back: %v", p)
				}
			}
			if n := len(partitionsIn(t, f.client, "x")); n != want {
				t.Errorf("%d partitions", n)
			}
			time.Sleep(15 * time.Minute) // virtual
			kept := c.members[0].server.reports
			_, _, tabled := kept.Kept()
			if kept.Of(keys.PartitionID(child)).Report != nil || tabled > want ||
				slices.ContainsFunc(kept.Claims(), func(c reports.Claim) bool {
					return c.Descriptor.Id == child
				}) {
				t.Error("what was reported of it is not forgotten")
			}
		})
	}
}

// A keyspace that is dropped while a merge is under way is dropped, in every stage.
func TestADropWinsOverAMerge(t *testing.T) {
	for after := range 8 {
		inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
			f.create(ranged("x", "m"))
			f.await(time.Minute, "all is well", f.settled)
			f.mu.Lock()
			f.merging.freezing, f.merging.lags = 3*time.Second, time.Minute
			f.mu.Unlock()
			f.merge(100)
			time.Sleep(time.Duration(after) * 2 * time.Second) // virtual
			if _, err := f.client.DropKeyspace(t.Context(), &clusterpb.DropKeyspaceRequest{
				Name: "x"}); err != nil {
				t.Fatal(err)
			}
			f.await(time.Minute, "the keyspace is gone", func() bool {
				return keyspaceOf(t, f.client, "x") == nil && f.idle()
			})
			time.Sleep(2 * time.Minute) // virtual; what its nodes report changes nothing
			v := c.members[0].server.config.Store.Stale()
			held, err := meta.Count(v, meta.HeldPrefix)
			if left := partitionsIn(t, f.client, ""); len(left) != 0 || held != 0 || err != nil {
				t.Errorf("what is left: %v, %d held, %v", left, held, err)
			}
		})
	}
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(ranged("x", "m"))
		f.await(time.Minute, "all is well", f.settled)
		c.hold(meta.HeldPrefix)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := f.client.MergePartition(ctx, &clusterpb.MergePartitionRequest{Partition: 100})
		cancel()
		if err == nil {
			t.Fatal("it is recorded at once")
		}
		f.await(time.Minute, "the write waits", c.holding)
		if _, err := f.client.DropKeyspace(t.Context(), &clusterpb.DropKeyspaceRequest{
			Name: "x"}); err != nil {
			t.Fatal(err)
		}
		c.release()
		f.await(time.Minute, "the keyspace is gone", func() bool {
			return keyspaceOf(t, f.client, "x") == nil && f.idle()
		})
	})
}

// Whichever write the core's leader falls at, before it or after it, the next one brings merges to
// their ends, however they are reported.
func TestTheNextLeaderGoesOnWithMerges(t *testing.T) {
	reportings := []splitReporting{{done: time.Hour}, {unsettled: 8 * time.Second, done: time.Hour}}
	for _, applied := range []bool{false, true} {
		for at, reached := 1, true; reached; at++ {
			inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
				f.create(ranged("x", "f", "m", "t"))
				time.Sleep(40 * time.Second) // virtual
				c.mu.Lock()
				c.crashAt, c.applied = c.proposed+at, applied
				c.mu.Unlock()
				f.mu.Lock()
				f.reporting = reportings[at%len(reportings)]
				f.merging.lags = 20 * time.Second
				f.mu.Unlock()
				for i := range 3 {
					first := partitionsIn(t, f.client, "x")
					slices.SortFunc(first, func(a, b *clusterpb.PartitionInfo) int {
						return strings.Compare(string(a.Partition.Start), string(b.Partition.Start))
					})
					f.merge(first[0].Partition.Id)
					if i == 1 {
						cancel(t, f, first[1].Partition.Id)
					}
					f.awaitWhole(5*time.Minute, "they have merged, or it was cancelled", f.settled)
				}
				if n := len(partitionsIn(t, f.client, "x")); n != 1 && n != 2 {
					t.Errorf("%d partitions", n)
				}
				held, err := meta.Count(c.members[0].server.config.Store.Stale(), meta.HeldPrefix)
				if held != 0 || err != nil {
					t.Errorf("%d are held: %v", held, err)
				}
				c.mu.Lock()
				reached = c.proposed >= c.crashAt
				c.mu.Unlock()
			})
			if t.Failed() {
				t.Fatalf("the core's leader fell at proposal %d, applied: %v", at, applied)
			}
			if !reached && at < 8 {
				t.Fatalf("only %d proposals were seen", at)
			}
		}
	}
}

// A partition that is frozen while nothing merges it, as after a recovery of the core, thaws: the
// core has the epoch raised for which it is.
func TestWhatIsFrozenForNothingThaws(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(ranged("x", "m"))
		f.await(time.Minute, "all is well", f.settled)
		right := f.freezeForNothing()
		f.await(2*time.Minute, "it has thawed", func() bool {
			f.mu.Lock()
			thawed := right.d.Frozen == nil
			f.mu.Unlock()
			return thawed && f.settled()
		})
		if e := events(t, f)[0]; e.Kind != "merge" || e.Outcome != "cancelled: it has to thaw" {
			t.Errorf("%v", e)
		}
	})
}

// freezeForNothing freezes partition 101, for partition 100, without an operator that merges them.
func (f *fleet) freezeForNothing() *fleetPartition {
	f.mu.Lock()
	defer f.mu.Unlock()
	left, right := f.parts[100].d, f.parts[101]
	right.d.Membership++
	right.d.Frozen = &clusterpb.Freeze{Partition: 100, Generation: left.Generation,
		Membership: left.Membership}
	return right
}

// A partition that is frozen for nothing thaws also if an operator of its own waits for that.
func TestFrozenPartitionWithAnOperatorThaws(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(ranged("x", "m"))
		f.await(time.Minute, "all is well", f.settled)
		right := f.freezeForNothing()
		f.mu.Lock()
		to := uint64(0)
		for _, r := range right.d.Replicas {
			if r.Replica != right.d.WantedLeader {
				to = r.Node
			}
		}
		f.mu.Unlock()
		if _, err := f.client.TransferLeader(t.Context(),
			&clusterpb.TransferLeaderRequest{Partition: 101, ToNode: to}); err != nil {
			t.Fatal(err)
		}
		f.await(5*time.Minute, "it has thawed, and its operator has ended", func() bool {
			f.mu.Lock()
			thawed := right.d.Frozen == nil
			f.mu.Unlock()
			return thawed && f.settled()
		})
	})
}

// operatorFor is the operator of a partition, as it is stored.
func operatorFor(t *testing.T, c *core, partition uint64) *serverpb.Operator {
	t.Helper()
	o := &serverpb.Operator{}
	revision, err := meta.Load(c.members[0].server.config.Store.Stale(),
		meta.OperatorKey(keys.PartitionID(partition)),
		o)
	if revision == 0 || err != nil {
		t.Fatalf("operator of %d: %v", partition, err)
	}
	return o
}

// proposalOf is a merge that the planner proposes.
func proposalOf(left, right uint64, epochs ...uint64) *planner.Operator {
	return &planner.Operator{Partition: keys.PartitionID(left), Right: keys.PartitionID(right),
		Keyspace: 1, Kind: planner.Merge,
		Epoch:      planner.Epoch{Generation: epochs[0], Membership: epochs[1]},
		RightEpoch: planner.Epoch{Generation: epochs[2], Membership: epochs[3]}}
}
