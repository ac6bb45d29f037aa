package kvtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/deploy/embedded/offline"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// bereft is a cluster of which nodes are lost: server 0 is the core, the others are data nodes.
type bereft struct {
	t       *testing.T
	c       *kvtest.Cluster
	client  *kv.Client
	ks      *kv.Keyspace
	node    []uint64 // by server
	lost    []int    // servers
	left    []int
	written int
}

// newBereft has a number of data nodes, partitions with three replicas, and pairs in them.
func newBereft(t *testing.T, nodes, partitions, pairs int) *bereft {
	c := kvtest.Start(t, kvtest.Options{Nodes: nodes, Cores: 1, Separate: true, Latency: latency})
	b := &bereft{t: t, c: c, client: c.Client(t)}
	b.ks = create(t, b.client, "things", kv.Hash(partitions), kv.Replicas(3))
	for i := range c.Servers() {
		b.node = append(b.node, c.Process(i).NodeID())
	}
	b.write(pairs)
	return b
}

func (b *bereft) write(pairs int) {
	b.t.Helper()
	for range pairs {
		put(b.t, b.ks, fmt.Sprintf("k%d", b.written), fmt.Sprintf("v%d", b.written))
		b.written++
	}
}

// lose takes the power from all data nodes. Those of some servers never come back.
func (b *bereft) lose(servers ...int) {
	b.t.Helper()
	lost := map[int]bool{}
	for _, i := range servers {
		lost[i] = true
	}
	b.lost = servers
	for i := 1; i < b.c.Servers(); i++ {
		if !lost[i] {
			b.left = append(b.left, i)
		}
	}
	b.c.KillAll(0, append(append([]int(nil), b.lost...), b.left...)...)
}

func (b *bereft) surveys() (all []*offline.Survey) {
	b.t.Helper()
	for _, i := range b.left {
		s, err := offline.SurveyDirectory(b.c.Disk(i).Mem(), b.c.Config(i).Dir, nil)
		if err != nil {
			b.t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

func (b *bereft) plan() *offline.RecoveryPlan {
	b.t.Helper()
	var lost []uint64
	for _, i := range b.lost {
		lost = append(lost, b.node[i])
	}
	plan, err := offline.MakeRecoveryPlan(b.surveys(), lost, rand.Uint64)
	if err != nil {
		b.t.Fatal(err)
	}
	return plan
}

func (b *bereft) apply(server int, plan *offline.RecoveryPlan) *offline.RecoveryOutcome {
	b.t.Helper()
	done, err := offline.ApplyRecovery(b.c.Disk(server).Mem(), b.c.Config(server).Dir, plan, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return done
}

func (b *bereft) confirm(plan *offline.RecoveryPlan) (admin.Recovered, error) {
	var partitions []admin.RecoveredPartition
	for _, r := range plan.Recovered {
		partitions = append(partitions, admin.RecoveredPartition{Partition: r.Partition,
			Keyspace: r.Keyspace, Node: r.Node, Replica: r.Replica, Membership: r.Membership,
			KnownMembership: r.Known})
	}
	return admin.New(b.client).ConfirmRecovery(b.t.Context(), plan.ID, plan.Lost, partitions)
}

func (b *bereft) run(servers ...int) {
	b.t.Helper()
	for _, i := range servers {
		if err := b.c.Run(i); err != nil {
			b.t.Fatal(err)
		}
	}
}

// await waits, in virtual time.
func (b *bereft) await(what string, holds func() bool) {
	b.t.Helper()
	for range 1200 {
		if holds() {
			return
		}
		time.Sleep(500 * time.Millisecond) // virtual
	}
	b.t.Fatalf("still waiting for %s", what)
}

// confirmAll confirms until all partitions go on.
func (b *bereft) confirmAll(plan *offline.RecoveryPlan) {
	b.t.Helper()
	b.await("the recovery", func() bool {
		r, err := b.confirm(plan)
		return err == nil && r.Waiting == 0
	})
}

// whole sees to it that all that was written is there, and that more can be.
func (b *bereft) whole() {
	b.t.Helper()
	b.write(20)
	for i := range b.written {
		got, err := b.ks.Get(b.t.Context(), fmt.Appendf(nil, "k%d", i))
		if err != nil || string(got.Value) != fmt.Sprintf("v%d", i) {
			b.t.Fatalf("k%d is %q: %v", i, got.Value, err)
		}
	}
}

// TestRecoverFromTheLossOfAMajority: of four nodes two are lost, and with them the majority of some
// partitions. The others go on with all that the survivors have; new nodes take the places of the
// lost ones.
func TestRecoverFromTheLossOfAMajority(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBereft(t, 4, 8, 200)
		time.Sleep(2 * time.Second) // virtual; all replicas have everything
		b.lose(3, 4)
		plan := b.plan()
		if plan.Healthy+len(plan.Recovered) != 8 || len(plan.Recovered) == 0 || len(plan.Gone) > 0 {
			t.Fatalf("%d go on, %d are recovered, %d are gone", plan.Healthy, len(plan.Recovered),
				len(plan.Gone))
		}
		for _, r := range plan.Recovered {
			if !r.MayLack {
				t.Errorf("partition %d had two of three replicas on lost nodes, and is to lack nothing",
					r.Partition)
			}
		}
		recovered := 0
		for _, i := range b.left {
			done := b.apply(i, plan)
			recovered += done.Recovered
			if again := b.apply(i, plan); done.Done || !again.Done || again.Recovered != done.Recovered {
				t.Errorf("applied once: %+v, twice: %+v", done, again)
			}
		}
		if recovered != len(plan.Recovered) {
			t.Errorf("%d partitions go on, of %d", recovered, len(plan.Recovered))
		}
		b.run(b.left...)
		if r, err := b.confirm(plan); err == nil && r.Recovered > 0 {
			t.Errorf("before it was confirmed the core took %d partitions", r.Recovered)
		}
		b.confirmAll(plan)
		b.whole()
		for _, i := range b.lost {
			if err := b.c.Wipe(i); err != nil {
				t.Fatal(err)
			}
		}
		b.run(b.lost...)
		b.await("three replicas of each partition", func() bool {
			all, err := admin.New(b.client).Partitions(t.Context(), "")
			if err != nil {
				return false
			}
			for _, p := range all {
				voters := 0
				for _, r := range p.Replicas {
					if !r.Learner && r.Node != b.node[3] && r.Node != b.node[4] {
						voters++
					}
				}
				if voters != 3 || len(p.Replicas) != 3 {
					return false
				}
			}
			return true
		})
		b.whole()
	})
}

// TestALostNodeThatComesBackIsRefused: its old replicas disturb nothing, and it ends.
func TestALostNodeThatComesBackIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBereft(t, 3, 4, 100)
		time.Sleep(2 * time.Second) // virtual
		b.lose(2, 3)
		plan := b.plan()
		b.apply(1, plan)
		b.run(1)
		b.confirmAll(plan)
		b.whole()
		b.run(2)
		select {
		case <-b.c.Process(2).Done():
		case <-time.After(time.Minute): // virtual
			t.Fatal("a node that is given up runs")
		}
		if err := b.c.Process(2).Err(); err == nil ||
			!strings.Contains(err.Error(), "refused for good") {
			t.Errorf("it ended with: %v", err)
		}
		b.whole()
	})
}

// TestRecoverInTheMiddleOfChanges: the logs of survivors end with changes of the replicas, at any
// step, and their states are from before.
func TestRecoverInTheMiddleOfChanges(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 3))
				b := newBereft(t, 5, 4, 100)
				time.Sleep(2 * time.Second) // virtual
				all, err := admin.New(b.client).Partitions(t.Context(), "")
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range all {
					has := map[uint64]bool{}
					for _, r := range p.Replicas {
						has[r.Node] = true
					}
					for _, to := range b.node[1:] {
						if !has[to] {
							if err := admin.New(b.client).MoveReplica(t.Context(), p.ID,
								p.Replicas[random.IntN(len(p.Replicas))].Node, to); err != nil {
								t.Fatal(err)
							}
							break
						}
					}
				}
				time.Sleep(time.Duration(random.IntN(4000)) * time.Millisecond) // virtual
				lost := random.Perm(5)[:2+random.IntN(2)]
				for i := range lost {
					lost[i]++
				}
				acknowledged := b.written
				b.lose(lost...)
				var nodes []uint64
				for _, i := range lost {
					nodes = append(nodes, b.node[i])
				}
				plan, err := offline.MakeRecoveryPlan(b.surveys(), nodes, rand.Uint64)
				if errors.Is(err, offline.ErrNothingToRecover) {
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, i := range b.left {
					b.apply(i, plan)
				}
				b.run(b.left...)
				b.await("the recovery", func() bool {
					r, err := b.confirm(plan)
					return err == nil && r.Waiting == 0
				})
				if len(plan.Gone) > 0 {
					return // some of what was written is lost
				}
				b.written = acknowledged
				b.whole()
			})
		})
	}
}

// TestTheSurvivorWithMostGoesOn: one survivor was cut off while others acknowledged more.
func TestTheSurvivorWithMostGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Nodes: 5, Cores: 1, Separate: true, Latency: latency})
		b := &bereft{t: t, c: c, client: c.Client(t)}
		b.ks = create(t, b.client, "things", kv.Hash(3), kv.Replicas(5))
		for i := range c.Servers() {
			b.node = append(b.node, c.Process(i).NodeID())
		}
		b.write(50)
		c.KillAll(0, 1)
		b.write(50)
		time.Sleep(2 * time.Second) // virtual
		b.lose(3, 4, 5)
		plan := b.plan()
		for _, r := range plan.Recovered {
			if r.Node != b.node[2] || len(r.Others) != 1 || r.Others[0].LastIndex >= r.LastIndex {
				t.Errorf("partition %d goes on at node %d with entry %d, others have %v",
					r.Partition, r.Node, r.LastIndex, r.Others)
			}
		}
		for _, i := range b.left {
			b.apply(i, plan)
		}
		b.run(b.left...)
		b.confirmAll(plan)
		b.whole()
	})
}

// TestAPlanThatDoesNotFit: it is refused, and nothing is changed.
func TestAPlanThatDoesNotFit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBereft(t, 4, 8, 50)
		time.Sleep(2 * time.Second) // virtual
		b.lose(3, 4)
		surveys := b.surveys()
		lost := []uint64{b.node[3], b.node[4]}
		fails := func(words string, err error) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%v; want: %s", err, words)
			}
		}
		_, err := offline.MakeRecoveryPlan(surveys, lost[:1], rand.Uint64)
		fails(fmt.Sprintf("nodes [%d] are not lost", b.node[4]), err)
		_, err = offline.MakeRecoveryPlan(surveys[:1], lost, rand.Uint64)
		fails("are not lost", err)
		_, err = offline.MakeRecoveryPlan(surveys, append(lost, 99), rand.Uint64)
		fails("no survivor knows of nodes [99]", err)
		_, err = offline.MakeRecoveryPlan(append(surveys, surveys[0]), lost, rand.Uint64)
		fails("two surveys of node", err)
		_, err = offline.MakeRecoveryPlan(surveys, []uint64{b.node[1]}, rand.Uint64)
		fails("is named as lost, and its directory is here", err)

		plan := b.plan()
		changed := *plan
		changed.Lost = nil
		apply := func(server int, plan *offline.RecoveryPlan) error {
			_, err := offline.ApplyRecovery(b.c.Disk(server).Mem(), b.c.Config(server).Dir, plan, nil)
			return err
		}
		fails("checksum is wrong", apply(1, &changed))
		fails("this is node", apply(3, plan))
		// The servers run once more: two of four nodes are back, after all.
		b.run(1, 2, 3)
		b.await("the partitions to be led again", func() bool {
			_, err := b.ks.Put(t.Context(), []byte("x"), []byte("y"))
			return err == nil
		})
		if _, err := b.confirm(plan); err == nil {
			t.Error("a node that is alive was given up")
		} else {
			fails("is alive", err)
		}
		b.write(100)
		b.c.KillAll(0, 1, 2, 3)
		for _, i := range b.left {
			fails("has changed since the plan was made", apply(i, plan))
		}
		b.run(1, 2, 3)
		b.await("the partitions to be led again", func() bool {
			_, err := b.ks.Put(t.Context(), []byte("x"), []byte("y"))
			return err == nil
		})
		b.whole()
	})
}

// TestNothingToRecover: partitions that have their majority are left alone.
func TestNothingToRecover(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBereft(t, 3, 4, 20)
		time.Sleep(2 * time.Second) // virtual
		b.lose(3)
		_, err := offline.MakeRecoveryPlan(b.surveys(), []uint64{b.node[3]}, rand.Uint64)
		if !errors.Is(err, offline.ErrNothingToRecover) {
			t.Errorf("%v; want that there is nothing to do", err)
		}
	})
}

// lockingFS lets a clone be made while directories are locked: a MemFS takes a lock within itself
// then, which a clone that waits in between keeps from ending.
type lockingFS struct {
	*vfs.MemFS
	locking *sync.Mutex
}

// Lock implements vfs.FS.
func (f lockingFS) Lock(name string) (io.Closer, error) {
	f.locking.Lock()
	defer f.locking.Unlock()
	return f.MemFS.Lock(name)
}

// outlivesCrashes carries out the plan on a copy of server 1's disk, once for each write that this
// makes. Each time the power goes at that write, and the plan is carried out to its end after that.
// It returns in how many cases the plan was begun and not done.
func (b *bereft) outlivesCrashes(plan *offline.RecoveryPlan) (begun int) {
	b.t.Helper()
	dir := b.c.Config(1).Dir
	before := b.c.Disk(1).Mem()
	// Each time the disk is looked at as it would be after a crash at one of its writes.
	for at := int64(1); ; at++ {
		var writes atomic.Int64
		var crashed *vfs.MemFS
		mem := before.CrashClone(vfs.CrashCloneCfg{})
		var locking sync.Mutex
		fs := errorfs.Wrap(lockingFS{mem, &locking}, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && writes.Add(1) == at {
				locking.Lock()
				defer locking.Unlock()
				crashed = mem.CrashClone(vfs.CrashCloneCfg{})
			}
			return nil
		}))
		whole, err := offline.ApplyRecovery(fs, dir, plan, nil)
		if err != nil {
			b.t.Fatal(err)
		}
		if crashed == nil {
			return begun // it makes no more writes
		}
		done, err := offline.ApplyRecovery(crashed, dir, plan, nil)
		if err != nil {
			b.t.Fatalf("after a crash at write %d: %v", at, err)
		}
		if done.Recovered != whole.Recovered || done.Recovered != len(plan.Recovered) {
			b.t.Fatalf("after a crash at write %d: %+v", at, done)
		}
		if !done.Done {
			begun++
		}
		if again, err := offline.ApplyRecovery(crashed, dir, plan, nil); err != nil || !again.Done {
			b.t.Fatalf("after a crash at write %d, twice: %+v, %v", at, again, err)
		}
	}
}

// TestRecoveryOutlivesCrashes: whenever the power goes while a plan is carried out, the server does
// not start before it is given once more, and then everything is there.
func TestRecoveryOutlivesCrashes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBereft(t, 3, 4, 100)
		time.Sleep(2 * time.Second) // virtual
		b.lose(2, 3)
		plan := b.plan()
		begun := b.outlivesCrashes(plan)
		if begun < 3 {
			t.Errorf("only %d crashes were in the middle of it", begun)
		}
		b.apply(1, plan)
		b.run(1)
		b.confirmAll(plan)
		b.whole()
	})
}

// TestNoServerStartsInTheMiddleOfARecovery.
func TestNoServerStartsInTheMiddleOfARecovery(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBereft(t, 3, 1, 5)
		b.lose(2, 3)
		plan := b.plan()
		mem, dir := b.c.Disk(1).Mem(), b.c.Config(1).Dir
		var middle *vfs.MemFS
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpRename && strings.HasSuffix(op.Path, "recovery.json.new") {
				middle = mem.CrashClone(vfs.CrashCloneCfg{}) // the last time is the end
			}
			return nil
		}))
		if _, err := offline.ApplyRecovery(fs, dir, plan, nil); err != nil {
			t.Fatal(err)
		}
		config := b.c.Config(1)
		config.FS = middle
		if _, err := embedded.StartServer(context.Background(), config); err == nil ||
			!strings.Contains(err.Error(), "is not done") {
			t.Errorf("it starts: %v", err)
		}
		if _, err := offline.SurveyDirectory(middle, dir, nil); err == nil {
			t.Error("a plan could be made of it")
		}
	})
}

// TestRecoverWhatHasSplitAndMerged: the survivor's log has a split and a merge that the loss of power
// has taken out of its state, with the bases of partitions that have acknowledged writes since.
// Whenever the power goes once more, the plan can be carried out to its end.
func TestRecoverWhatHasSplitAndMerged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Nodes: 3, Cores: 1, Separate: true, Latency: latency})
		b := &bereft{t: t, c: c, client: c.Client(t)}
		b.ks = create(t, b.client, "things", kv.Range([]byte("k4"), []byte("k7")), kv.Replicas(3))
		for i := range c.Servers() {
			b.node = append(b.node, c.Process(i).NodeID())
		}
		b.write(100)
		reshape := admin.New(b.client)
		if _, err := reshape.SplitPartition(t.Context(), "things", []byte("k2")); err != nil {
			t.Fatal(err)
		}
		partitions := func() (n int, all []admin.PartitionInfo) {
			all, err := reshape.Partitions(t.Context(), "things")
			if err != nil {
				t.Fatal(err)
			}
			return len(all), all
		}
		b.await("the split", func() bool { n, _ := partitions(); return n == 4 })
		b.write(100)
		_, all := partitions()
		if _, err := reshape.MergePartition(t.Context(), all[2].ID); err != nil {
			t.Fatal(err)
		}
		b.await("the merge", func() bool { n, _ := partitions(); return n == 3 })
		b.write(100)
		time.Sleep(2 * time.Second) // virtual; all replicas have everything
		b.lose(2, 3)
		plan := b.plan()
		if len(plan.Gone) > 0 {
			t.Fatalf("partitions are gone: %+v", plan.Gone)
		}
		b.outlivesCrashes(plan)
		b.apply(1, plan)
		b.run(1)
		b.confirmAll(plan)
		b.whole()
	})
}
