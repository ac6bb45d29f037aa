package replica

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
)

// tableCountingFS counts the tables that are made to be ingested.
type tableCountingFS struct {
	vfs.FS
	tables *atomic.Int64
}

func (s tableCountingFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.Contains(name, "ingest") {
		s.tables.Add(1)
	}
	return s.FS.Create(name, category)
}

// Many partitions are destroyed together, with as many tables as one and a few flushes, and nothing
// of those between them goes.
func TestDestroyTogether(t *testing.T) {
	const all = 200
	mem := vfs.NewCrashableMem()
	fs := tableCountingFS{mem, new(atomic.Int64)}
	state, err := engine.OpenState(engine.Options{FS: fs, Dir: "state"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { state.Close() }()
	c := newTestCluster(t, 1, config.Limits{})
	defer c.close()
	kept := func(i int) bool { return i%7 == 3 || i == 0 || i == all-1 }
	var replicas []*Replica
	var gone []storage.Gone
	b := state.NewBatch()
	defer b.Close()
	for i := range all {
		p := testPartition(1)
		p.Id, p.Start = uint64(1000+i), keys.HashPrefix(7, uint16(i))
		p.Hash, p.PrefixLength, p.End = uint32(i), keys.HashPrefixLength, keys.PrefixEnd(p.Start)
		r, err := New(Config{Partition: p, ReplicaID: 1, State: state, Group: c.members[0],
			Node: c.members[0].node})
		if err != nil {
			t.Fatal(err)
		}
		replicas = append(replicas, r)
		key := fmt.Appendf(p.Start[:len(p.Start):len(p.Start)], "key %d", i)
		if err := b.Set(keys.AppendTimestamp(keys.DataKey(key), hlc.Timestamp{Wall: 5}),
			[]byte("value"),
			nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := state.Commit(b); err != nil {
		t.Fatal(err)
	}
	sums := map[int]uint64{}
	for i, r := range replicas {
		if kept(i) {
			if _, sums[i], err = r.Checksum(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		g, err := r.Gone()
		if err != nil {
			t.Fatal(err)
		}
		gone = append(gone, g)
	}
	// Their order is that of a map elsewhere.
	for i := range gone {
		j := (i * 7919) % len(gone)
		gone[i], gone[j] = gone[j], gone[i]
	}
	flushes := state.Metrics().Flush.Count
	if err := storage.Destroy(context.Background(), state, gone...); err != nil {
		t.Fatal(err)
	}
	if n := state.Metrics().Flush.Count - flushes; n > 4 {
		t.Errorf("%d flushes to destroy %d partitions in %d pieces", n, len(gone), all/7)
	}
	if n := fs.tables.Load(); n > 2 {
		t.Errorf("%d tables were made to destroy %d partitions", n, len(gone))
	}
	for i, want := range sums {
		if _, sum, err := replicas[i].Checksum(); err != nil || sum != want {
			t.Errorf("partition %s, which is kept, has changed: %v", replicas[i].ID(), err)
		}
		replicas[i].Close()
	}
	crashed, err := engine.OpenState(engine.Options{FS: mem.CrashClone(vfs.CrashCloneCfg{}),
		Dir: "state"})
	if err != nil {
		t.Fatal(err)
	}
	defer crashed.Close()
	for _, g := range gone {
		for _, span := range storage.Spans(g.ID, *g.Span) {
			i, err := crashed.NewIter(nil)
			if err != nil {
				t.Fatal(err)
			}
			if i.SeekGE(span.Start) && storage.Contains(span, i.Key()) {
				t.Errorf("%s is still there after a crash", keys.PrettyState(i.Key()))
			}
			i.Close()
		}
	}
}
