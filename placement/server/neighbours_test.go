package server

import (
	"bytes"
	"testing"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// partitionOf describes a partition of keyspace 2 by user keys.
func partitionOf(id uint64, start, end string) *clusterpb.Partition {
	prefix := keys.KeyspacePrefix(2)
	d := &clusterpb.Partition{Id: id, Keyspace: 2, Generation: 1,
		PrefixLength: keys.KeyspacePrefixLength, Start: append(bytes.Clone(prefix), start...),
		End: append(bytes.Clone(prefix), end...)}
	if end == "" {
		d.End = keys.PrefixEnd(prefix)
	}
	return d
}

// Neighbours are found through splits, merges and drops, and never across keyspaces and hash
// numbers.
func TestNeighbours(t *testing.T) {
	l := newLayout(nil)
	expect := func(id, left, right keys.PartitionID) {
		t.Helper()
		if x, y := l.neighbours(id); x != left || y != right {
			t.Errorf("%s lies between %s and %s, want %s and %s", id, x, y, left, right)
		}
	}
	l.set(partitionOf(1, "", "m"))
	l.set(partitionOf(2, "m", ""))
	for n := range uint16(2) {
		prefix := keys.HashPrefix(3, n)
		l.set(&clusterpb.Partition{Id: 10 + uint64(n), Keyspace: 3, Hash: uint32(n), Start: prefix,
			End: keys.PrefixEnd(prefix), PrefixLength: keys.HashPrefixLength})
	}
	expect(1, 0, 2)
	expect(2, 1, 0)
	expect(10, 0, 0)
	expect(11, 0, 0)
	expect(99, 0, 0)
	// A split, told child first and then parent first.
	l.set(partitionOf(3, "f", "m"))
	l.set(partitionOf(1, "", "f"))
	expect(1, 0, 3)
	expect(3, 1, 2)
	expect(2, 3, 0)
	l.set(partitionOf(2, "m", "t"))
	l.set(partitionOf(4, "t", ""))
	expect(2, 3, 4)
	// A merge of 1 and 3.
	l.drop(3)
	l.set(partitionOf(1, "", "m"))
	expect(1, 0, 2)
	expect(2, 1, 4)
	l.drop(4)
	expect(2, 1, 0)
	l.drop(4)
}
