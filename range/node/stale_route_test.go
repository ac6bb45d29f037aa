package node

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/node/table"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// coveringDescriptor is a partition of keyspace 1 with the keys from one number to another one,
// which is 1000 at its end.
func coveringDescriptor(id uint64, from, to int,
	generation, splitFrom uint64) *clusterpb.Partition {
	prefix := keys.KeyspacePrefix(1)
	d := &clusterpb.Partition{Id: id, Keyspace: 1, PrefixLength: keys.KeyspacePrefixLength,
		Start: prefix, End: keys.PrefixEnd(prefix), Generation: generation, SplitFrom: splitFrom}
	if from > 0 {
		d.Start = coveringKey(from)
	}
	if to < 1000 {
		d.End = coveringKey(to)
	}
	return d
}

func coveringKey(i int) []byte { return fmt.Appendf(keys.KeyspacePrefix(1), "%03d", i) }

// coveringNode knows a table, and has replicas.
func coveringNode(listed, own []*clusterpb.Partition) *Node {
	n := &Node{base: &hosted.Node{Now: func() int64 { return 0 }}}
	n.replicas = hosted.NewRegistry()
	n.tables = table.NewCurrent(table.New().With(&clusterpb.TableUpdate{Partitions: listed}))
	m := &madeSpans{of: n.replicas.Snapshot(), cost: 1, by: map[uint64]*clusterpb.Partition{},
		from: map[uint64][]*clusterpb.Partition{},
		order: slices.SortedFunc(slices.Values(own), func(a, b *clusterpb.Partition) int {
			return bytes.Compare(a.Start, b.Start)
		})}
	for _, d := range own {
		m.by[d.Id] = d
		m.from[d.SplitFrom] = append(m.from[d.SplitFrom], d)
	}
	n.spans.made = m
	return n
}

func ids(all []*clusterpb.Partition) (out []uint64) {
	for _, d := range all {
		out = append(out, d.Id)
	}
	return out
}

// A refusal brings the partition itself, what has split off from it here, of which the table knows
// nothing yet, and what the table knows of the rest.
func TestARefusalBringsTheHalves(t *testing.T) {
	table := []*clusterpb.Partition{coveringDescriptor(10, 0, 100, 1, 0),
		coveringDescriptor(11, 100, 500, 4, 0), coveringDescriptor(12, 500, 1000, 1, 0)}
	p := coveringDescriptor(11, 100, 200, 6, 0)
	own := []*clusterpb.Partition{p, coveringDescriptor(20, 300, 500, 5, 11),
		coveringDescriptor(21, 200, 300, 6, 11), coveringDescriptor(22, 250, 300, 7, 21)}
	n := coveringNode(table, own)
	for _, c := range []struct {
		from, to int
		want     []uint64
	}{
		{120, 130, []uint64{11, 21, 22, 20}},
		{220, 230, []uint64{11, 21, 22, 20}},
		{350, 360, []uint64{11, 20, 22, 21}},
		{350, 550, []uint64{11, 20, 12, 22, 21}},
	} {
		got := ids(n.covering(p, keys.Span{Start: coveringKey(c.from), End: coveringKey(c.to)}))
		if !slices.Equal(got, c.want) {
			t.Errorf("for %d to %d: %v, want %v", c.from, c.to, got, c.want)
		}
	}
	if p := n.covering(p, keys.PartitionSpan(p))[0]; p.Generation != 6 {
		t.Errorf("of two epochs it brings %v", p)
	}
}

// Whatever a node knows: a refusal brings no more than it may, each partition once and by its
// latest epoch, and all that overlap the request, or the first of them.
func TestARefusalBringsWhatIsNear(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cuts := rapid.SliceOfNDistinct(rapid.IntRange(1, 999), 1, 200, rapid.ID[int]).Draw(t, "cuts")
		slices.Sort(cuts)
		var table, own, newest []*clusterpb.Partition
		for i := range len(cuts) + 1 {
			from, to := 0, 1000
			if i > 0 {
				from = cuts[i-1]
			}
			if i < len(cuts) {
				to = cuts[i]
			}
			d := coveringDescriptor(uint64(10+i), from, to, 5, 0)
			newest = append(newest, d)
			switch rapid.IntRange(0, 2).Draw(t, "known") {
			case 0:
				table = append(table, d)
			case 1:
				own = append(own, d)
				if rapid.Bool().Draw(t, "old") {
					table = append(table, coveringDescriptor(d.Id, from, min(1000, to+3), 4, 0))
				}
			default:
				table, own = append(table, d), append(own, d)
			}
		}
		n := coveringNode(table, own)
		p := rapid.SampledFrom(newest).Draw(t, "partition")
		from := rapid.IntRange(0, 999).Draw(t, "from")
		span := keys.Span{Start: coveringKey(from),
			End: coveringKey(rapid.IntRange(from+1, 1000).Draw(t, "to"))}
		got := n.covering(p, span)
		if len(got) > maxCovering || got[0] != p {
			t.Fatalf("%d descriptors, the first is %v", len(got), got[0])
		}
		seen := map[uint64]bool{}
		for _, d := range got {
			if seen[d.Id] || d.Generation != 5 {
				t.Fatalf("%v twice, or old", d)
			}
			seen[d.Id] = true
		}
		near := 0
		for _, d := range newest {
			if keys.PartitionSpan(d).Overlaps(span) {
				if near++; near < maxCovering && !seen[d.Id] {
					t.Fatalf("%v overlaps %s and is not brought, of %d", d, span, len(got))
				}
			}
		}
	})
}
