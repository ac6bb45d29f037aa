package store

import (
	"context"
	"fmt"
	"testing"

	"github.com/tidemarkdb/tidemark/placement/store/newest"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// versionAfterPut writes a key, and returns its version then.
func versionAfterPut(t *testing.T, s *Store, key string) uint64 {
	t.Helper()
	put(t, s, key, "v")
	kv, err := s.Stale().Get([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return kv.Version
}

// An import writes versions that no command has: the next write of such a key counts from them.
func TestImportForgetsTheNewest(t *testing.T) {
	c, s := one(t, nil)
	defer c.close()
	put(t, s, "k", "old")
	do(t, s, writes(Delete([]byte("k"))))
	do(t, s, Import(&storepb.Import{Id: 7, Step: 1, Revision: 9, Source: []byte("x"), End: true,
		Versions: []*storepb.ImportedVersion{version("k", 5, 9, 3)}}))
	if got := versionAfterPut(t, s, "k"); got != 4 {
		t.Errorf("version %d after a put of a key that was imported with version 3, want 4", got)
	}
}

// What a key was before is not read while no watch asks for it, and is there for one that asks
// later for events of that time.
func TestPreviousOfEventsWithoutWatches(t *testing.T) {
	c, s := one(t, nil)
	defer c.close()
	put(t, s, "k", "1")
	before := s.newest.Counts()
	put(t, s, "k", "2")
	if after := s.newest.Counts(); after.Unknown != before.Unknown {
		t.Error("a put of a key that was just written has read the database")
	}
	w, err := s.Watch([]byte("k"), s.Revision()-1)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, want := range []string{"1", "2"} {
		batch, err := w.Next(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if e := batch.Events[0]; string(e.Previous.GetValue()) != want {
			t.Errorf("before revision %d, the key was %q, the event says %q", e.KV.ModRevision, want,
				e.Previous.GetValue())
		}
		if want == "1" {
			put(t, s, "k", "3") // with a watch that asks
		}
	}
}

// Once the keys are noted, a put of a new key reads nothing, and one of a key that was there reads
// it.
func TestPutsOfNewKeysReadNothing(t *testing.T) {
	c, s := one(t, func(c *Config) {
		c.newest = &newest.Limits{GenerationBytes: 10_000, VersionBytes: 100, MinKeys: 1000,
			MaxKeys: 1000, Misses: 3}
	})
	defer c.close()
	for i := range 2 * tables.NotedKeys {
		if i%500 == 0 {
			var ops []*storepb.Op
			for n := i; n < i+500; n++ {
				ops = append(ops, Put(fmt.Appendf(nil, "there/%05d", n), nil))
			}
			do(t, s, writes(ops...))
		}
	}
	for n := 0; ; n++ {
		before := s.newest.Counts()
		put(t, s, fmt.Sprint("new/", n), "v")
		if after := s.newest.Counts(); after.Filter > before.Filter {
			break
		}
	}
	for i := range 2 * tables.NotedKeys {
		if i%97 == 0 {
			if got := versionAfterPut(t, s, fmt.Sprintf("there/%05d", i)); got != 2 {
				t.Fatalf("key %d has version %d after its second put", i, got)
			}
		}
	}
}

// The first key of the second piece of a scan is written between the pieces, and what the scan has
// met of it is compacted: it is noted nevertheless.
func TestKeysAreNotedBesideCompaction(t *testing.T) {
	limits := &newest.Limits{GenerationBytes: 10_000, VersionBytes: 100, MinKeys: 1 << 17,
		MaxKeys: 1 << 17}
	c, s := one(t, func(c *Config) {
		c.newest = &newest.Limits{Misses: 1 << 30, MaxKeys: 1, MinKeys: 1}
	})
	defer c.close()
	for i := 0; i < 2*tables.NotedKeys; i += 128 {
		var ops []*storepb.Op
		for n := i; n < i+128; n++ {
			ops = append(ops, Put(fmt.Appendf(nil, "there/%05d", n), nil))
		}
		do(t, s, writes(ops...))
	}
	m := c.members[0]
	m.close()
	m.open(func(c *Config) { c.newest = limits })
	s = m.store
	f := s.newest.Begin() // a scan is wanted at once; this test is the scan
	c.elect(m)
	from := s.Layout.Table(tables.TableVersion)
	piece := func() {
		if err := s.ReadState(func(r *tables.Reader) (err error) {
			from, err = r.NoteKeys(f, from)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if !f.Added() {
			t.Fatal("the keys are not wanted")
		}
	}
	piece()
	found, _, err := tables.DecodeVersionKey(from)
	if err != nil {
		t.Fatal(err)
	}
	key := string(found)
	put(t, s, key, "second")
	do(t, s, Compact(s.Revision()))
	for from != nil {
		piece()
	}
	f.Done(true)
	for n := range 1000 {
		put(t, s, fmt.Sprint("other/", n), "v") // so that what was written of the key is forgotten
	}
	if got := versionAfterPut(t, s, key); got != 3 {
		t.Errorf("key %s has version %d after its third put", key, got)
	}
}
