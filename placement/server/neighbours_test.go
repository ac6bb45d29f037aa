package server

import (
	"bytes"
	"testing"

	"github.com/tidemarkdb/tidemark/placement/server/reports"
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
	l := newLayout()
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

// What is reported of another generation, of keys at which a partition cannot split, or cannot be
// at all, is not believed, and the rest is.
func TestReportedSplitKeys(t *testing.T) {
	d := partitionOf(1, "f", "m")
	d.Generation = 4
	report := func(generation uint64, load, size *clusterpb.SplitKey) *clusterpb.PartitionReport {
		r := &clusterpb.PartitionReport{Partition: 1, Generation: generation, SustainedLoadMicro: 5,
			Split: &clusterpb.SplitHints{ByLoad: load, BySize: size, HotKey: []byte("h"),
				HotThousandths: 5000, AscendingThousandths: 7}}
		seen := reports.New()
		seen.Heartbeat(1, &clusterpb.HeartbeatRequest{Node: 1, Full: true,
			Reports: []*clusterpb.PartitionReport{r}}, 10, 0)
		return seen.Of(1).Report
	}
	key := func(key string, left, right uint32) *clusterpb.SplitKey {
		return &clusterpb.SplitKey{Key: []byte(key), Left: left, Right: right}
	}
	g := plannerGrowth(d, report(4, key("g", 400, 600), key("h", 500, 500)))
	if g.Sustained != 5 || string(g.ByLoad.Key) != "g" || g.BySize.Left != 500 || g.Hot != 1000 ||
		g.Ascending != 7 {
		t.Errorf("%+v", g)
	}
	for what, r := range map[string]*clusterpb.PartitionReport{
		"an earlier generation": report(3, key("g", 400, 600), nil),
		"its start":             report(4, key("f", 400, 600), nil),
		"its end":               report(4, key("m", 400, 600), nil),
		"before it":             report(4, key("a", 400, 600), nil),
		"no key":                report(4, key("", 400, 600), nil),
		"a key that is too long": report(4,
			key("g"+string(make([]byte, keys.MaxKeySize)), 400, 600), nil),
		"too many parts":  report(4, key("g", 400, 700), nil),
		"parts that wrap": report(4, key("g", 1<<31, 1<<31), nil),
		"nothing":         nil,
	} {
		if g := plannerGrowth(d, r); g.ByLoad != nil {
			t.Errorf("%s: %+v", what, g.ByLoad)
		}
		p := plannerPartition(d, reports.Partition{Report: r}, surroundings{})
		if p.Growth.ByLoad != nil || p.ID != 1 {
			t.Errorf("%s: %+v", what, p)
		}
	}
}
