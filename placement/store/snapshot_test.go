package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/snapshot"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// fill makes a state with something in every table.
func fill(t fataler, s *Store) {
	do(t, s, Grant(1, 1<<40))
	session := do(t, s, openSession()).Session
	for i := range 300 {
		c := writes(Put(fmt.Appendf(nil, "key%d", i%50), bytes.Repeat([]byte{byte(i)}, 5000)))
		c.Session, c.Sequence, c.Acknowledged = session, uint64(i+1), uint64(max(0, i-3))
		do(t, s, c)
	}
	do(t, s, writes(PutLeased([]byte("leased"), nil, 1), deletePrefix([]byte("key1"))))
	do(t, s, Compact(150))
}

func snapshotOf(t fataler, s *Store) (data []byte, index, term uint64) {
	t.Helper()
	snap, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	var b bytes.Buffer
	if err := snap.Write(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), snap.Index(), snap.Term()
}

func TestSnapshotReplacesEverything(t *testing.T) {
	c := newCore(t, 2, nil)
	defer c.close()
	c.elect(c.members[0])
	put(t, c.members[0].store, "before", "1")
	c.members[1].catchUp()
	do(t, c.members[0].store, writes(Delete([]byte("before"))))
	fill(t, c.members[0].store)
	data, index, term := snapshotOf(t, c.members[0].store)
	put(t, c.members[0].store, "after", "1") // not in the snapshot any more
	staged, err := c.members[1].store.StageSnapshot(t.Context(), index, term, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if get(t, c.members[1].store, "before") != "1" {
		t.Error("staging has changed something")
	}
	if err := staged.Install(); err != nil {
		t.Fatal(err)
	}
	if durable, err := c.members[1].store.DurableApplied(); err != nil || durable != index {
		t.Errorf("durable is %d, %v; want %d", durable, err, index)
	}
	c.members[1].catchUp()
	same(t, c.members[0].dump(), c.members[1].dump())
	if get(t, c.members[1].store, "before") != "-" || get(t, c.members[1].store, "after") != "1" {
		t.Error("the state is not that of the snapshot and what followed")
	}
	// It survives a power failure, and the leases are known.
	c.members[1].state.Close()
	if n := c.members[1].store.lessor.Count(); n != 1 {
		t.Errorf("%d leases", n)
	}
	c.members[1].down = true
	c.members[1].store.Close()
}

// A read while a snapshot is installed sees what was there or what comes, and not neither.
func TestReadDuringInstall(t *testing.T) {
	c := newCore(t, 2, nil)
	defer c.close()
	c.elect(c.members[0])
	put(t, c.members[0].store, "k", "0")
	c.members[1].catchUp()
	var installed atomic.Bool
	var reads sync.WaitGroup
	defer reads.Wait()
	defer installed.Store(true)
	for range 3 {
		reads.Go(func() {
			for last := ""; !installed.Load() && !t.Failed(); {
				kv, err := c.members[1].store.Stale().Get([]byte("k"))
				if err != nil || kv == nil || string(kv.Value) < last {
					t.Errorf("read %v after %q, %v", kv, last, err)
					return
				}
				last = string(kv.Value)
			}
		})
	}
	for i := 0; i < 300 && !t.Failed(); i++ {
		put(t, c.members[0].store, "k", fmt.Sprintf("%03d", i))
		transfer(t, c.members[0], c.members[1])
	}
}

// Spans that had no keys in the old state are forgotten before the new state can be seen: a reader
// of the new state would skip keys. So they are forgotten also if the snapshot is not installed.
func TestInstallForgetsVacantSpansFirst(t *testing.T) {
	c := newCore(t, 1, nil)
	defer c.close()
	c.elect(c.members[0])
	s := c.members[0].store
	put(t, s, "k", "0")
	revision := s.Revision()
	s.blocks.FoundVacant(keys.Span{Start: []byte("q"), End: []byte("r")}, revision, 5)
	if _, vacant := s.blocks.Vacant().End([]byte("q1"), revision); !vacant {
		t.Fatal("a vacant span is not remembered")
	}
	if err := (&staged{store: s, paths: []string{"missing.sst"}}).Install(); err == nil {
		t.Fatal("a table that does not exist is installed")
	}
	s.blocks.FoundVacant(keys.Span{Start: []byte("s"), End: []byte("t")}, revision, 5)
	for _, key := range []string{"q1", "s1"} {
		if _, vacant := s.blocks.Vacant().End([]byte(key), revision+1); vacant {
			t.Errorf("%s is still in a span without keys", key)
		}
	}
}

func TestSnapshotIsVerified(t *testing.T) {
	c := newCore(t, 2, nil)
	defer c.close()
	c.elect(c.members[0])
	fill(t, c.members[0].store)
	data, index, term := snapshotOf(t, c.members[0].store)
	target := c.members[1].store
	stage := func(index, term uint64, data []byte) error {
		staged, err := target.StageSnapshot(context.Background(), index, term, bytes.NewReader(data))
		if err == nil {
			staged.Discard()
		}
		return err
	}
	if err := stage(index, term, data); err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]func() error{
		"another index": func() error { return stage(index+1, term, data) },
		"another term":  func() error { return stage(index, term+1, data) },
		"nothing":       func() error { return stage(index, term, nil) },
		"more":          func() error { return stage(index, term, append(bytes.Clone(data), 0)) },
		"no end":        func() error { return stage(index, term, data[:len(data)-24]) },
	} {
		if err := bad(); !errors.Is(err, snapshot.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	source := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		bad := bytes.Clone(data)
		bad[source.IntN(len(bad))] ^= 1 << source.IntN(8)
		if err := stage(index, term, bad); err == nil {
			t.Fatal("a flipped bit was not noticed")
		}
		if err := stage(index, term, data[:source.IntN(len(data))]); !errors.Is(err,
			snapshot.ErrDamaged) {
			t.Fatalf("a cut stream: %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := target.StageSnapshot(ctx, index, term, bytes.NewReader(data))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("staging after its end: %v", err)
	}
	if r := target.Revision(); r != 1 {
		t.Errorf("something was changed: revision %d", r)
	}
}

type discardPairs struct{}

func (discardPairs) Set(_, _ []byte) error { return nil }

// A valid command of any content is applied without an error, and alike by all.
func FuzzApply(f *testing.F) {
	data, err := command.Encode(If([]*storepb.Compare{Absent([]byte("a"))},
		[]*storepb.Op{Put([]byte("a"), []byte("b"))}, []*storepb.Op{deletePrefix([]byte("a"))}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		decoded, _, err := command.Decode(data)
		if err != nil || command.Validate(decoded) != nil {
			return
		}
		c := newCore(t, 2, nil)
		defer c.close()
		c.elect(c.members[0])
		for range 2 {
			if result, err := c.members[0].store.Do(context.Background(), decoded); result == nil {
				t.Fatal(err)
			}
		}
		c.members[1].catchUp()
		same(t, c.members[0].dump(), c.members[1].dump())
	})
}

// A power failure at any moment leaves some applied index at or above what was said to be durable,
// with exactly the state of that index; applying the rest of the log leads to the same state as if
// nothing had happened.
func TestCrash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCore(t, 2, nil)
		defer c.close()
		leader, victim := c.members[0], c.members[1]
		c.elect(leader)
		m := newModel()
		dumps := map[uint64][]string{0: nil}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch action := rapid.IntRange(0, 9).Draw(t, "action"); {
			case action == 0:
				if err := victim.state.Flush(); err != nil {
					t.Fatal(err)
				}
			case action == 1:
				victim.catchUp()
			case action == 2:
				if index, _ := victim.store.Applied(); int(index) < len(c.log) {
					transfer(t, leader, victim)
				}
			case action == 3:
				durable, err := victim.store.DurableApplied()
				if err != nil {
					t.Fatal(err)
				}
				clone := victim.fs.CrashClone(vfs.CrashCloneCfg{
					UnsyncedDataPercent: rapid.SampledFrom([]int{0, 50, 100}).Draw(t, "unsynced"),
					RNG:                 rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "seed"))),
				})
				victim.close()
				victim.fs = clone
				victim.open(nil)
				index, _ := victim.store.Applied()
				if index < durable {
					t.Fatalf("index %d was durable, %d is left", durable, index)
				}
				same(t, victim.dump(), dumps[index])
			default:
				cmd := drawCommand(t, m)
				if command.Validate(cmd) == nil {
					if result, err := leader.store.Do(context.Background(), cmd); result == nil {
						t.Fatal(err)
					}
					m.apply(cmd)
				}
			}
			for len(dumps) <= len(c.log) {
				// What each index looks like, from a member that never crashes. (The leader applies
				// one entry at a time.)
				index, _ := leader.store.Applied()
				dumps[index] = leader.dump()
				for i := range index {
					if _, ok := dumps[i]; !ok {
						dumps[i] = nil
					}
				}
			}
		}
		victim.catchUp()
		same(t, victim.dump(), leader.dump())
	})
}
