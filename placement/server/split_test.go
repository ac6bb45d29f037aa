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
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

func ranged(name string, splitAt ...string) *clusterpb.CreateKeyspaceRequest {
	r := &clusterpb.CreateKeyspaceRequest{Name: name, Partitioning: clusterpb.Partitioning_RANGE,
		ReplicationFactor: 3}
	for _, key := range splitAt {
		r.SplitAt = append(r.SplitAt, []byte(key))
	}
	return r
}

func (f *fleet) split(keyspace, key string) *clusterpb.SplitPartitionResponse {
	f.t.Helper()
	r, err := f.client.SplitPartition(f.t.Context(), &clusterpb.SplitPartitionRequest{
		Keyspace: keyspace, Key: []byte(key)})
	if err != nil {
		f.t.Fatalf("split %s at %s: %v", keyspace, key, err)
	}
	return r
}

// A partition splits when it is asked for, in a range keyspace and in a hash keyspace, and so do
// its parts. What is asked for twice is done once; what cannot be is refused.
func TestSplit(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(ranged("x", "m"))
		first := f.split("x", "f")
		if again := f.split("x", "f"); !proto.Equal(first, again) {
			t.Errorf("asked for twice: %v, %v", first, again)
		}
		_, err := f.client.SplitPartition(t.Context(), &clusterpb.SplitPartitionRequest{Keyspace: "x",
			Key: []byte("g")})
		if err == nil || !strings.Contains(err.Error(), "changes partition 100 already") {
			t.Errorf("another split of the partition: %v", err)
		}
		if o := operatorsOf(t, f)[0]; o.Kind != "split" || o.Child != first.Child ||
			string(o.SplitAt) != "f" || o.Partition != 100 {
			t.Errorf("the operator is shown as %v", o)
		}
		f.await(time.Minute, "it has split", func() bool { return f.idle() && f.asTable("x") })
		if again := f.split("x", "f"); again.Operator != 0 || again.Partition != 100 ||
			again.Child != first.Child {
			t.Errorf("a boundary that there is: %v", again)
		}
		if again := f.split("x", "m"); again.Operator != 0 || again.Child != 101 ||
			again.Partition != first.Child {
			t.Errorf("a boundary from the beginning: %v", again)
		}
		for _, key := range []string{"b", "h", "z"} {
			f.split("x", key)
		}
		f.await(time.Minute, "all have split", func() bool { return f.idle() && f.asTable("x") })
		table := partitionsIn(t, f.client, "x")
		if wrong := tiled(table, keys.PrefixSpan(keys.KeyspacePrefix(1))); wrong != "" ||
			len(table) != 6 {
			t.Errorf("%d partitions; %s", len(table), wrong)
		}
		if n := keyspaceOf(t, f.client, "x").Partitions; n != 6 {
			t.Errorf("%d partitions are counted", n)
		}
		e := events(t, f)
		if n := slices.IndexFunc(e, func(e *clusterpb.Event) bool {
			return e.Child == first.Child
		}); n < 0 ||
			e[n].Kind != "split" || e[n].Outcome != "done" || string(e[n].SplitAt) != "f" {
			t.Errorf("events: %v", e)
		}
		why, err := f.client.Why(t.Context(), &clusterpb.WhyRequest{Partition: first.Child})
		if err != nil || !strings.Contains(why.Text, fmt.Sprintf(
			"split of partition 100 at \"f\", with partition %d to the right", first.Child)) {
			t.Errorf("why: %v, %v", why, err)
		}
		for key, want := range map[string]string{"": "empty", strings.Repeat("k", 9000): "too large"} {
			_, err := f.client.SplitPartition(t.Context(), &clusterpb.SplitPartitionRequest{Keyspace: "x",
				Key: []byte(key)})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("a key of %d bytes: %v", len(key), err)
			}
		}
	})
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("h", 4, 3))
		for _, key := range []string{"m", "c", "x", "k"} {
			r := f.split("h", key)
			number := keys.HashPartition([]byte(key), 4)
			f.await(time.Minute, "it has split", func() bool { return f.idle() && f.asTable("h") })
			f.mu.Lock()
			if d := f.parts[r.Child].d; d.Hash != number || string(keys.UserKey(d, d.Start)) != key {
				t.Errorf("at %s split off %v", key, d)
			}
			f.mu.Unlock()
		}
	})
}

func operatorsOf(t *testing.T, f *fleet) []*clusterpb.OperatorInfo {
	t.Helper()
	r, err := f.client.ListOperators(t.Context(), &clusterpb.ListOperatorsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Operators
}

// A split that is cancelled before it was carried out leaves the partition whole, and the child's
// id is not given out again. One that was carried out is done.
func TestASplitIsCancelled(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(ranged("x"))
		used := map[uint64]bool{}
		for range 3 {
			f.await(time.Minute, "all is well", func() bool { return f.sound(3) && f.idle() })
			r := f.split("x", "m")
			if used[r.Child] {
				t.Fatalf("the id %d is given out again", r.Child)
			}
			used[r.Child] = true
			cancel(t, f, 100)
			f.await(time.Minute, "it is cancelled", func() bool { return f.idle() })
			if n := len(partitionsIn(t, f.client, "x")); n != 1 || events(t, f)[0].Outcome !=
				"cancelled: asked for" {
				t.Fatalf("%d partitions, %v", n, events(t, f)[0])
			}
		}
		f.mu.Lock()
		f.reporting = splitReporting{unsettled: time.Minute, done: time.Hour}
		f.mu.Unlock()
		r := f.split("x", "m")
		f.await(time.Minute, "it was carried out", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.parts[r.Child] != nil
		})
		cancel(t, f, 100)
		f.await(3*time.Minute, "it is in the table", func() bool { return f.idle() && f.asTable("x") })
		if e := events(t, f)[0]; e.Outcome != "done" {
			t.Errorf("it has ended as %v", e)
		}
	})
}

func cancel(t *testing.T, f *fleet, partition uint64) {
	t.Helper()
	if _, err := f.client.CancelOperator(t.Context(), &clusterpb.CancelOperatorRequest{
		Partition: partition}); err != nil {
		t.Fatal(err)
	}
}

// However late and incompletely a split is reported, the table never has a hole or an overlap, and
// comes to have both parts and the leader of each.
func TestASplitIsReportedLate(t *testing.T) {
	for name, reporting := range map[string]splitReporting{
		"at once":                   {done: time.Hour},
		"once":                      {done: 4 * time.Second},
		"the child late":            {done: time.Hour, mute: 2 * time.Minute},
		"described late":            {unsettled: 20 * time.Second, done: time.Hour},
		"named late":                {whole: 20 * time.Second, done: time.Hour, mute: time.Hour},
		"named very late":           {whole: 3 * time.Minute, done: time.Hour, mute: time.Hour},
		"described very late":       {unsettled: 3 * time.Minute, done: time.Hour, mute: time.Hour},
		"the child's leader has to": {mute: 20 * time.Second},
		"the child's, very late":    {mute: 3 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
				f.create(ranged("x"))
				f.reporting = reporting
				f.split("x", "m")
				f.await(5*time.Minute, "it has split", func() bool {
					if wrong := tiled(partitionsIn(t, f.client, "x"),
						keys.PrefixSpan(keys.KeyspacePrefix(1))); wrong != "" {
						t.Fatal(wrong)
					}
					return f.idle() && len(partitionsIn(t, f.client, "x")) == 2
				})
				f.mu.Lock()
				for _, p := range f.parts {
					p.mute = time.Time{}
				}
				f.mu.Unlock()
				f.await(30*time.Second, "the leaders are known", func() bool { return f.asTable("x") })
			})
		})
	}
}

// What is waited for is shown.
func TestAnIncompleteSplitIsShown(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(ranged("x"))
		f.reporting = splitReporting{whole: time.Minute, done: time.Hour, mute: 20 * time.Second}
		f.split("x", "m")
		f.await(15*time.Second, "it is said", func() bool {
			o := operatorsOf(t, f)
			return len(o) == 1 && strings.Contains(o[0].WaitsFor, "is not reported")
		})
		f.await(25*time.Second, "its own leader suffices", func() bool { return f.asTable("x") })
	})
}

// A keyspace that is dropped while a split is recorded, or while it is written, is dropped with
// everything.
func TestADropWinsOverASplit(t *testing.T) {
	for _, held := range []string{meta.OperatorPrefix, "/0000000000000065"} { // of partition 101
		inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
			f.create(ranged("x"))
			f.await(time.Minute, "all is well", func() bool { return f.sound(3) && f.idle() })
			c.hold(held)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := f.client.SplitPartition(ctx, &clusterpb.SplitPartitionRequest{Keyspace: "x",
				Key: []byte("m")})
			cancel()
			if (held == meta.OperatorPrefix) != (err != nil) {
				t.Fatalf("split: %v", err)
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
			time.Sleep(2 * time.Minute) // virtual; what its nodes report changes nothing
			if left := partitionsIn(t, f.client, ""); len(left) != 0 {
				t.Errorf("what is left: %v", left)
			}
		})
	}
}

// A split that is proposed is begun only if the partition is as the planner knew it.
func TestAProposedSplit(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(ranged("x", "m"))
		f.await(time.Minute, "all is well", func() bool { return f.sound(3) && f.idle() })
		s := c.members[0].server
		propose := func(epoch planner.Epoch, key string) (*serverpb.Operator, error) {
			p := planner.Operator{Kind: planner.Split, Keyspace: 1, Partition: 100, Epoch: epoch,
				Key: planner.Key(key), Reason: planner.Reason{Cause: planner.TooLarge}}
			o, _, err := s.operators.Proposed(s.config.Store.Stale(), &p)
			if o != nil && err == nil {
				err = s.operators.BeginProposed(t.Context(), []planner.Operator{p})
			}
			return o, err
		}
		if o, err := propose(planner.Epoch{Generation: 1, Membership: 2}, "f"); o != nil || err != nil {
			t.Errorf("for another epoch: %v, %v", o, err)
		}
		if o, err := propose(planner.Epoch{Generation: 1, Membership: 1}, "m"); o != nil || err == nil {
			t.Errorf("at its end: %v, %v", o, err)
		}
		if o, err := propose(planner.Epoch{Generation: 1, Membership: 1}, "f"); o == nil || err != nil {
			t.Errorf("%v, %v", o, err)
		}
		f.await(time.Minute, "it has split", func() bool { return f.idle() && f.asTable("x") })
		if e := events(t, f)[0]; e.Reason != (planner.Reason{Cause: planner.TooLarge}).String() || e.Outcome != "done" {
			t.Errorf("%v", e)
		}
	})
}

// The leader of a partition that split off is known in the end, also if it was reported once, and
// forgotten before the table had the partition.
func TestTheLeaderOfAChildIsKnown(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(ranged("x"))
		f.mu.Lock()
		f.reporting, f.news = splitReporting{unsettled: 30 * time.Second, done: time.Hour}, true
		f.mu.Unlock()
		r := f.split("x", "m")
		time.Sleep(20 * time.Second) // virtual
		s, child := c.members[0].server, keys.PartitionID(r.Child)
		if leader, _ := s.reports.Progress(child); leader == 0 || f.idle() {
			t.Fatal("the child's leader is not heard before the table has the child")
		}
		s.reports.Drop([]keys.PartitionID{child})
		f.await(time.Minute, "the child's leader is known", func() bool { return f.asTable("x") })
	})
}

// Whichever write the core's leader falls at, before it or after it, the next one brings splits to
// their ends, however they are reported; and no id is given out twice.
func TestTheNextLeaderGoesOnWithSplits(t *testing.T) {
	reportings := []splitReporting{{done: time.Hour}, {mute: 8 * time.Second},
		{whole: 8 * time.Second, done: time.Hour, mute: 20 * time.Second}}
	for _, applied := range []bool{false, true} {
		for at, reached := 1, true; reached; at++ {
			inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
				f.create(ranged("x"))
				time.Sleep(40 * time.Second) // virtual
				c.mu.Lock()
				c.crashAt, c.applied = c.proposed+at, applied
				c.mu.Unlock()
				f.mu.Lock()
				f.reporting = reportings[at%len(reportings)]
				f.mu.Unlock()
				whole := keys.PrefixSpan(keys.KeyspacePrefix(1))
				children := map[uint64]bool{100: true}
				for i, key := range []string{"m", "f", "t"} {
					r := f.split("x", key)
					if i == 1 {
						cancel(t, f, r.Partition)
					}
					f.await(5*time.Minute, "it has split, or was cancelled", func() bool {
						if wrong := tiled(partitionsIn(t, f.client, "x"), whole); wrong != "" {
							t.Fatal(wrong)
						}
						return f.idle() && f.asTable("x")
					})
					if children[r.Child] {
						t.Errorf("partition id %d is given out twice", r.Child)
					}
					children[r.Child] = true
				}
				if n := len(partitionsIn(t, f.client, "x")); n != 3 && n != 4 {
					t.Errorf("%d partitions", n)
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
