package proposal

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// How much of the reserve an entry may use follows from what it does: values that are new have no
// share, whatever they come with.
func TestShareOf(t *testing.T) {
	state, err := engine.OpenState(engine.Options{FS: vfs.NewMem(), Dir: "state"})
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	key, ts := []byte("\x00\x00\x00\x07k"), hlc.Timestamp{Wall: 5}
	version := func(b *engine.StateBatch, kind mvcc.Kind) error {
		return mvcc.Write(b, key, ts, mvcc.Header{Kind: kind}, nil)
	}
	lock := func(b *engine.StateBatch, kind kvpb.Mutation_Kind) error {
		l := txn.Lock{Kind: kind, Prepared: ts, Acquired: 1, Request: keys.RequestID{Client: 1,
			Sequence: 1}, Transaction: txn.Info{ID: txn.ID{1}, Begun: ts, Started: ts, Keyspace: 7,
			Anchor: []byte("k")}}
		return b.Set(txn.LockKey(key), l.Append(nil), nil)
	}
	unlock := func(b *engine.StateBatch) error { return b.Delete(txn.LockKey(key), nil) }
	for name, c := range map[string]struct {
		kind Kind
		fill func(b *engine.StateBatch) error
		want group.Share
	}{
		"a value": {KindWrite,
			func(b *engine.StateBatch) error { return version(b, mvcc.KindValue) }, 0},
		"a tombstone": {KindWrite,
			func(b *engine.StateBatch) error { return version(b, mvcc.KindTombstone) }, 1},
		"a value in place of a lock": {KindTransaction, func(b *engine.StateBatch) error {
			if err := unlock(b); err != nil {
				return err
			}
			return version(b, mvcc.KindValue)
		}, 1},
		"a value beside a lock for a deletion": {KindTransaction, func(b *engine.StateBatch) error {
			if err := lock(b, kvpb.Mutation_DELETE); err != nil {
				return err
			}
			return version(b, mvcc.KindValue)
		}, 0},
		"a lock for a value": {KindTransaction,
			func(b *engine.StateBatch) error { return lock(b, kvpb.Mutation_PUT) }, 0},
		"a lock for a deletion": {KindTransaction,
			func(b *engine.StateBatch) error { return lock(b, kvpb.Mutation_DELETE) }, 1},
		"a record": {KindTransaction, func(b *engine.StateBatch) error {
			return b.Set(txn.RecordKey(key, txn.ID{1}), []byte("record"), nil)
		}, 1},
		"a removal": {KindRemove, func(b *engine.StateBatch) error {
			return b.Delete(keys.AppendTimestamp(keys.DataKey(key), ts), nil)
		}, 2},
		"a load": {KindLoad, func(*engine.StateBatch) error { return nil }, 0},
	} {
		b := state.NewBatch()
		if err := c.fill(b); err != nil {
			t.Fatal(err)
		}
		e := Entry{Kind: c.kind, Proposer: 1, Sequence: 1, Batch: b.Repr()}
		if got := ShareOf(e.Encode()); got != c.want {
			t.Errorf("%s has the share %d, want %d", name, got, c.want)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := ShareOf([]byte{entryVersion, byte(KindWrite), 0xff}); got != group.NoShare {
		t.Errorf("an entry that is cut off has the share %d", got)
	}
}
