package raftlog

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// What is above an index is counted, be it in memory or, after a start, on disk.
func TestBytesAbove(t *testing.T) {
	fs := vfs.NewMem()
	f := open(t, fs)
	if err := f.log.Create(identity); err != nil {
		t.Fatal(err)
	}
	g := f.openGroup(applied(0, 0))
	want := func(index uint64, bytes int) {
		t.Helper()
		if got := g.BytesAbove(index); got != int64(bytes) {
			t.Errorf("%d bytes are above %d, want %d", got, index, bytes)
		}
	}
	want(0, 0)
	// All entries have the same length.
	all := entries(1, 1, 9)
	each := entryFootprint(all[0])
	f.submit(&Append{Group: g, HardState: hardState(1, 2, 9), Entries: all})
	want(0, 9*each)
	want(4, 5*each)
	want(9, 0)
	want(20, 0)
	g.Release(6, true)
	want(6, 3*each)
	want(4, 5*each) // two of them on disk only
	if err := g.Truncate(3); err != nil {
		t.Fatal(err)
	}
	want(0, 6*each)
	f.close()
	f = open(t, fs)
	defer f.close()
	g = f.openGroup(applied(6, 1))
	want(6, 3*each)
	f.submit(&Append{Group: g, Entries: entries(1, 10, 10)})
	want(9, each+len("0"))
	want(7, 2*each+each+len("0"))
}
