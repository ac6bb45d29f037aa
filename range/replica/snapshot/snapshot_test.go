package snapshot

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/spans"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/release"
	"github.com/tidemarkdb/tidemark/rpc/release/golden"
)

// owner is a replica that is to be filled.
type owner struct{ descriptor *clusterpb.Partition }

func (o owner) ID() keys.PartitionID             { return keys.PartitionID(o.descriptor.Id) }
func (o owner) Descriptor() *clusterpb.Partition { return storage.Empty(o.descriptor) }

// What one state database writes is what another one has when the tables are ingested. A stream
// that is cut off leaves neither tables nor a claim.
func TestStream(t *testing.T) {
	open := func() *engine.State {
		s, err := engine.OpenState(engine.Options{FS: vfs.NewMem(), Dir: "state"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	prefix := keys.KeyspacePrefix(7)
	d := &clusterpb.Partition{Id: 3, Keyspace: 7, Start: prefix, End: keys.PrefixEnd(prefix),
		PrefixLength: keys.KeyspacePrefixLength, Generation: 1, Membership: 1,
		Replicas:    []*clusterpb.Replica{{Node: 1, Replica: 1, Role: clusterpb.ReplicaRole_VOTER}},
		NextReplica: 2}
	from, at := open(), hlc.Timestamp{Wall: 5}
	if err := storage.WriteDescriptor(from, d); err != nil {
		t.Fatal(err)
	}
	b := from.NewBatch()
	defer b.Close()
	for _, key := range []string{"a", "b", "c"} {
		if err := mvcc.Write(b, keys.InternalKey(d, []byte(key)), at,
			mvcc.Header{Kind: mvcc.KindValue}, []byte("value")); err != nil {
			t.Fatal(err)
		}
	}
	if err := from.Commit(b); err != nil {
		t.Fatal(err)
	}
	stats, err := storage.CountVersions(from, keys.PartitionSpan(d), func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	record := storage.Record{Index: 9, Term: 2, Highest: at, Stats: stats}
	last := from.NewBatch()
	defer last.Close()
	if err := last.Set(keys.LocalKey(3, keys.SuffixApplied), record.Append(nil), nil); err != nil {
		t.Fatal(err)
	}
	if err := from.Commit(last); err != nil {
		t.Fatal(err)
	}

	released := false
	s, err := Take(from, 3, func() { released = true })
	if err != nil {
		t.Fatal(err)
	}
	var stream bytes.Buffer
	if err := s.Write(context.Background(), &stream); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil || !released || s.Index() != 9 || s.Term() != 2 {
		t.Fatalf("%v, released: %t", err, released)
	}

	golden.Check(t, "stream", func(*release.Active) []golden.Record {
		return []golden.Record{{Name: "partition", Data: stream.Bytes()}}
	}, func(g golden.Record) error {
		staged, err := NewReceiver(owner{d}, open(), &spans.Table{}, nil, 1).Receive(t.Context(), 9, 2,
			bytes.NewReader(g.Data))
		if err == nil {
			staged.Discard()
		}
		return err
	})

	to, table := open(), &spans.Table{}
	r := NewReceiver(owner{d}, to, table, nil, 1) // a table for each version, or two
	_, err = r.Receive(context.Background(), 9, 2, bytes.NewReader(stream.Bytes()[:stream.Len()-1]))
	if !errors.Is(err, ErrMalformed) || table.Overlapping(8, keys.PartitionSpan(d)) != 0 {
		t.Fatalf("a stream that is cut off: %v", err)
	}
	staged, err := r.Receive(context.Background(), 9, 2, &stream)
	if err != nil {
		t.Fatal(err)
	}
	if other := table.Overlapping(8, keys.PartitionSpan(d)); other != 3 {
		t.Fatalf("partition %s claims the span", other)
	}
	if err := staged.Ingest(); err != nil {
		t.Fatal(err)
	}
	staged.Unclaim()
	_, want, err := storage.Checksum(from, 3)
	if err != nil {
		t.Fatal(err)
	}
	if index, got, err := storage.Checksum(to, 3); err != nil || got != want || index != 9 {
		t.Fatalf("checksum %x at index %d, and it was %x: %v", got, index, want, err)
	}
}
