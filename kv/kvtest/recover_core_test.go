package kvtest_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tidemarkdb/tidemark/deploy/embedded/offline"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// corePlan plans that the core goes on from a server that is down.
func corePlan(t *testing.T, c *kvtest.Cluster, server int) *offline.CoreRecovery {
	t.Helper()
	plan, err := offline.PlanCoreRecovery(c.Disk(server).Mem(), c.Config(server).Dir, rand.Uint64)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// TestTheCoreGoesOnFromOneMember: two of three are lost, the third has all that it acknowledged,
// and decides alone from then on. Nodes and clients follow it, and a lost member that comes back is
// out.
func TestTheCoreGoesOnFromOneMember(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Nodes: 3, Cores: 3, Separate: true, Latency: latency})
		client := c.Client(t)
		ks := create(t, client, "before", kv.Hash(2), kv.Replicas(3))
		put(t, ks, "k", "v")
		putCoordination(t, c, "lock", "held")
		time.Sleep(2 * time.Second) // virtual
		c.KillAll(0, 0, 1, 2)
		plan := corePlan(t, c, 2)
		if !plan.MayLack || len(plan.Members) != 3 || plan.Coordination == nil ||
			!plan.Coordination.MayLack || plan.Coordination.Empty {
			t.Errorf("the plan: %+v", plan)
		}
		for i := range 2 {
			done, err := offline.ApplyCoreRecovery(c.Disk(2).Mem(), c.Config(2).Dir, plan)
			if err != nil || done != (i == 1) {
				t.Fatalf("applied %d times before: %v, %v", i, done, err)
			}
		}
		if err := c.Run(2); err != nil {
			t.Fatal(err)
		}
		works := func(name string) {
			t.Helper()
			var err error
			for range 60 {
				var ks *kv.Keyspace
				if ks, err = client.CreateKeyspace(t.Context(), name, kv.Hash(2),
					kv.Replicas(3)); err == nil ||
					errors.Is(err, kv.ErrKeyspaceExists) {
					if _, err = ks.Put(t.Context(), []byte("x"), []byte("y")); err == nil {
						return
					}
				}
				time.Sleep(time.Second) // virtual
			}
			t.Fatalf("the core does not go on: %v", err)
		}
		works("after")
		if got, err := ks.Get(t.Context(), []byte("k")); err != nil || string(got.Value) != "v" {
			t.Errorf("what was there before: %q, %v", got.Value, err)
		}
		if all, err := admin.New(client).Keyspaces(t.Context()); err != nil || len(all) != 2 {
			t.Errorf("keyspaces: %v, %v", all, err)
		} else if max(all[0].ID, all[1].ID) < 1000 {
			t.Errorf("an id is given out that the lost members may have given: %v", all)
		}
		hasCoordination(t, c.Process(2), "lock", "held")
		putCoordination(t, c, "after", "it")
		// The table of nodes and clients begins anew: what they have seen of the lost members' later
		// revisions is no part of it.
		if err := c.Run(0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // virtual
		works("back")
		if !c.Process(2).LeadsCoordination() {
			t.Error("the one that is left does not lead the coordination store")
		}
	})
}

// TestCoreRecoveryOutlivesCrashes: whenever the power goes, the plan given once more brings it to
// its end, and the server does not start before.
func TestCoreRecoveryOutlivesCrashes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Nodes: 1, Cores: 3, Separate: true, Latency: latency})
		create(t, c.Client(t), "before", kv.Hash(2), kv.Replicas(1))
		putCoordination(t, c, "lock", "held")
		time.Sleep(2 * time.Second) // virtual
		c.KillAll(0, 0, 1, 2)
		plan := corePlan(t, c, 2)
		changed := *plan
		changed.Replica++
		before, dir := c.Disk(2).Mem(), c.Config(2).Dir
		if _, err := offline.ApplyCoreRecovery(before, dir, &changed); !errors.Is(err,
			offline.ErrCorePlan) {
			t.Errorf("a plan that was changed: %v", err)
		}
		if _, err := offline.ApplyCoreRecovery(c.Disk(1).Mem(), dir, plan); !errors.Is(err,
			offline.ErrCorePlan) {
			t.Errorf("a plan of another server: %v", err)
		}
		middle := 0
		for at := int64(1); ; at++ {
			var writes atomic.Int64
			var crashed *vfs.MemFS
			mem := before.CrashClone(vfs.CrashCloneCfg{})
			fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && writes.Add(1) == at {
					crashed = mem.CrashClone(vfs.CrashCloneCfg{})
				}
				return nil
			}))
			if _, err := offline.ApplyCoreRecovery(fs, dir, plan); err != nil {
				t.Fatal(err)
			}
			if crashed == nil {
				break
			}
			if _, err := offline.PlanCoreRecovery(crashed.CrashClone(vfs.CrashCloneCfg{}), dir,
				rand.Uint64); err != nil && strings.Contains(err.Error(), "being carried out") {
				middle++
			}
			for i := range 2 {
				done, err := offline.ApplyCoreRecovery(crashed, dir, plan)
				if err != nil || i == 1 && !done {
					t.Fatalf("after a crash at write %d, the %d. time: %v, %v", at, i+1, done, err)
				}
			}
		}
		if middle < 3 {
			t.Errorf("only %d crashes were in the middle of it", middle)
		}
		if _, err := offline.ApplyCoreRecovery(before, dir, plan); err != nil {
			t.Fatal(err)
		}
		if err := c.Run(2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second) // virtual
		if all, err := admin.New(c.Client(t)).Keyspaces(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("keyspaces: %v, %v", all, err)
		}
		hasCoordination(t, c.Process(2), "lock", "held")
		putCoordination(t, c, "after", "it")
	})
}
