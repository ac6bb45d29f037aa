package spans

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// The table of spans finds what a look at all partitions finds, also while some of them overlap.
func TestSpansAreFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, model := new(Table), make(map[keys.PartitionID]*clusterpb.Partition)
		point := func(name string) []byte {
			return append(keys.KeyspacePrefix(7), rapid.SliceOfN(rapid.ByteRange('a', 'e'), 0, 2).Draw(t,
				name)...)
		}
		draw := func() *clusterpb.Partition {
			start, end := point("start"), point("end")
			if slices.Compare(start, end) >= 0 || rapid.IntRange(0, 4).Draw(t, "last") == 0 {
				end = keys.PrefixEnd(keys.KeyspacePrefix(7))
			}
			return &clusterpb.Partition{Id: rapid.Uint64Range(1, 8).Draw(t, "id"), Keyspace: 7,
				Start: start, End: end, PrefixLength: keys.KeyspacePrefixLength, Generation: 1}
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			d := draw()
			id := keys.PartitionID(d.Id)
			switch rapid.IntRange(0, 4).Draw(t, "do") {
			case 0:
				n.Release(id)
				delete(model, id)
			case 1:
				other := draw()
				n.Merge(d, other)
				delete(model, keys.PartitionID(other.Id))
				model[id] = d
			default:
				n.Own(d)
				model[id] = d
			}
			asked := draw()
			span, left := keys.PartitionSpan(asked), 0
			overlaps := make(map[keys.PartitionID]bool)
			for id, d := range model {
				if id != keys.PartitionID(asked.Id) && keys.PartitionSpan(d).Overlaps(span) {
					overlaps[id] = true
				}
				if slices.Compare(d.Start, asked.Start) < 0 {
					left++
				}
			}
			found := n.Overlapping(keys.PartitionID(asked.Id), span)
			if found == 0 && len(overlaps) > 0 || found != 0 && !overlaps[found] {
				t.Fatalf("%s overlaps %s, of %v", found, span, overlaps)
			}
			if got := n.LeftOf(asked); len(got) != left {
				t.Fatalf("%d are to the left of %s, not %d", len(got), span, left)
			}
			if len(n.owned) != len(model) ||
				n.byStart.Len()+len(n.odd) != len(model) {
				t.Fatal("it knows of others")
			}
		}
	})
}

// BenchmarkSpans asks for a span among those of many partitions.
func BenchmarkSpans(b *testing.B) {
	n := new(Table)
	descriptor := func(i int) *clusterpb.Partition {
		start := keys.HashPrefix(keys.KeyspaceID(1+i>>16), uint16(i))
		return &clusterpb.Partition{Id: uint64(i + 1), Start: start, End: keys.PrefixEnd(start),
			PrefixLength: keys.HashPrefixLength}
	}
	for i := range 100_000 {
		n.Own(descriptor(i))
	}
	b.ResetTimer()
	for i := range b.N {
		d := descriptor(i % 100_000)
		if n.Overlapping(keys.PartitionID(d.Id), keys.PartitionSpan(d)) != 0 {
			b.Fatal("another one has it")
		}
	}
}
