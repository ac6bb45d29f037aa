package store

import (
	"bytes"
	"crypto/rand"
	"testing"

	"github.com/tidemarkdb/tidemark/placement/store/tables"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// other opens a second store in a member's database, with a group of its own.
func (m *member) other(t *testing.T, partition keys.PartitionID) (*core, *member) {
	t.Helper()
	c := &core{t: t, term: 1}
	o := &member{core: c, id: m.id, fs: m.fs, state: m.state}
	var err error
	if o.store, err = New(Config{State: m.state, Group: o, Random: rand.Reader,
		Partition: partition, Name: "another store"}); err != nil {
		t.Fatal(err)
	}
	c.members = []*member{o}
	c.elect(o)
	t.Cleanup(func() {
		c.elect(nil)
		o.store.Close()
	})
	return c, o
}

// Two stores of one database have nothing in common: neither keys and revisions, nor leases and
// compaction, nor what a snapshot replaces.
func TestStoresOfOneDatabase(t *testing.T) {
	first, s := one(t, nil)
	_, o := first.members[0].other(t, keys.CorePartition+1)
	put(t, s, "a", "first")
	do(t, s, Grant(7, 60_000))
	do(t, s, writes(PutLeased([]byte("leased"), nil, 7)))
	if r := o.store.Revision(); r != tables.InitialRevision {
		t.Fatalf("the other store is at revision %d", r)
	}
	if r := put(t, o.store, "a", "other"); r != tables.InitialRevision+1 {
		t.Fatalf("the first write of the other store has revision %d", r)
	}
	before := first.members[0].dump()
	do(t, o.store, Grant(7, 60_000))
	do(t, o.store, Revoke(7))
	put(t, o.store, "a", "again")
	do(t, o.store, Compact(o.store.Revision()))
	do(t, o.store, writes(deletePrefix([]byte("a")), Put([]byte("b"), nil)))
	same(t, before, first.members[0].dump())

	// A snapshot of the one goes to another member's database, and leaves what is there.
	away, p := one(t, nil)
	_, q := away.members[0].other(t, keys.CorePartition+1)
	put(t, p, "mine", "1")
	kept := away.members[0].dump()
	snap, err := o.store.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	var data bytes.Buffer
	if err := snap.Write(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	in, err := q.store.StageSnapshot(t.Context(), snap.Index(), snap.Term(), &data)
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Install(); err != nil {
		t.Fatal(err)
	}
	same(t, o.dump(), q.dump())
	same(t, kept, away.members[0].dump())
}
