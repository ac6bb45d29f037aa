package table

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// rangeKeyspace makes a keyspace that is split at the given keys; holes names partitions, by
// number, that are missing.
func rangeKeyspace(splits []string, holes map[int]bool) *Keyspace {
	prefix := keys.KeyspacePrefix(7)
	start := prefix
	var all []*Partition
	for i := range len(splits) + 1 {
		end := keys.PrefixEnd(prefix)
		if i < len(splits) {
			end = append(bytes.Clone(prefix), splits[i]...)
		}
		d := &clusterpb.Partition{Id: uint64(100 + i), Keyspace: 7, Start: start, End: end,
			PrefixLength: 4, Generation: 1}
		if !holes[i] {
			all = append(all, &Partition{ID: keys.PartitionID(d.Id),
				Span: keys.PartitionUserSpan(d), Descriptor: d})
		}
		start = end
	}
	return keyspaceOf(&clusterpb.Keyspace{Id: 7, Partitioning: clusterpb.Partitioning_RANGE}, all)
}

func keyspaceOf(info *clusterpb.Keyspace, all []*Partition) *Keyspace {
	l := newLayout()
	l.change(all, nil)
	return l.keyspace(keys.KeyspaceID(info.Id), info, true)
}

// Look-ups agree with looking at every partition.
func TestLookUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.StringOfN(rapid.RuneFrom([]rune("ab")), 1, 3, 3)
		splits := rapid.SliceOfNDistinct(key, 0, 6, rapid.ID[string]).Draw(t, "splits")
		slices.Sort(splits)
		holes := map[int]bool{}
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, len(splits)), 0, 2).Draw(t, "holes") {
			holes[i] = true
		}
		k := rangeKeyspace(splits, holes)
		probe := rapid.OneOf(key, rapid.Just("")).Draw(t, "key")

		var want, before *Partition
		for _, p := range k.Partitions() {
			if p.Span.Contains([]byte(probe)) {
				want = p
			}
			below := len(p.Span.End) == 0 && probe == "" || probe != "" && string(p.Span.Start) < probe &&
				(len(p.Span.End) == 0 || probe <= string(p.Span.End))
			if below {
				before = p
			}
		}
		if got := k.ByKey([]byte(probe)); got != want {
			t.Fatalf("ByKey(%q) = %v, want %v", probe, got, want)
		}
		if got := k.Before(0, []byte(probe)); got != before {
			t.Fatalf("Before(%q) = %v, want %v", probe, got, before)
		}
		if k.Complete() != (len(holes) == 0) {
			t.Fatalf("Complete() = %t with %d holes", k.Complete(), len(holes))
		}
		end := rapid.OneOf(key, rapid.Just("")).Draw(t, "end")
		span := keys.Span{Start: []byte(probe), End: []byte(end)}
		if span.Empty() {
			return
		}
		var overlapping []*Partition
		for _, p := range k.Partitions() {
			if p.Span.Overlaps(span) {
				overlapping = append(overlapping, p)
			}
		}
		if got := k.Overlapping(span); !slices.Equal(got, overlapping) {
			t.Fatalf("Overlapping(%s) = %v, want %v", span, got, overlapping)
		}
	})
}

func TestHashLookUp(t *testing.T) {
	var all []*Partition
	for h := range uint32(8) {
		if h != 3 {
			start := keys.HashPrefix(1, uint16(h))
			all = append(all, &Partition{Hash: h,
				Descriptor: &clusterpb.Partition{Start: start, End: keys.PrefixEnd(start),
					PrefixLength: keys.HashPrefixLength}})
		}
	}
	k := keyspaceOf(&clusterpb.Keyspace{Partitioning: clusterpb.Partitioning_HASH,
		HashPartitions: 8}, all)
	if k.Complete() {
		t.Error("complete with a hole")
	}
	for range 2 { // with the list of all partitions, and without
		for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
			want := keys.HashPartition([]byte(key), 8)
			p := k.ByKey([]byte(key))
			if (p == nil) != (want == 3) || p != nil && p.Hash != want {
				t.Errorf("%q: %v, want %d", key, p, want)
			}
		}
		if len(k.Partitions()) != 7 {
			t.Errorf("%d partitions", len(k.Partitions()))
		}
	}
}

// A keyspace of more hash numbers than a byte counts is complete if none of them is missing, and
// not otherwise.
func TestManyHashNumbersAreComplete(t *testing.T) {
	const numbers = 600
	var all []*Partition
	for h := range uint32(numbers) {
		start := keys.HashPrefix(1, uint16(h))
		all = append(all, &Partition{ID: keys.PartitionID(h + 1), Hash: h,
			Descriptor: &clusterpb.Partition{Id: uint64(h + 1), Hash: h, Start: start,
				End: keys.PrefixEnd(start), PrefixLength: keys.HashPrefixLength}})
	}
	info := &clusterpb.Keyspace{Id: 1, Partitioning: clusterpb.Partitioning_HASH,
		HashPartitions: numbers}
	if !keyspaceOf(info, all).Complete() {
		t.Fatal("it is not complete")
	}
	l := newLayout()
	for _, p := range slices.Backward(all) { // one by one
		if l.keyspace(1, info, true).Complete() {
			t.Fatalf("it is complete without partition %d", p.ID)
		}
		l.change([]*Partition{p}, nil)
	}
	if !l.keyspace(1, info, true).Complete() {
		t.Error("it is not complete when the last one has come")
	}
	for _, missing := range []int{0, 1, 254, 255, 256, 257, numbers - 1} {
		if keyspaceOf(info, slices.Delete(slices.Clone(all), missing, missing+1)).Complete() {
			t.Errorf("it is complete without hash number %d", missing)
		}
	}
}

// Of descriptors that overlap, the later generation stays, in whatever order they came.
func TestArrange(t *testing.T) {
	make := func(id, generation uint64, start, end string) *Partition {
		prefix := keys.KeyspacePrefix(1)
		d := &clusterpb.Partition{Id: id, Generation: generation,
			Start: append(bytes.Clone(prefix), start...),
			End:   append(bytes.Clone(prefix), end...), PrefixLength: 4}
		return &Partition{ID: keys.PartitionID(id), Descriptor: d, Span: keys.PartitionUserSpan(d)}
	}
	old, lower, upper, other := make(1, 1, "a", "m"), make(1, 2, "a", "f"), make(2, 2, "f", "m"),
		make(3, 1, "m", "z")
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.Permutation([]*Partition{old, lower, upper, other}).Draw(t, "order")
		got := keyspaceOf(&clusterpb.Keyspace{}, slices.Clone(all)).Partitions()
		if !slices.Equal(got, []*Partition{lower, upper, other}) {
			t.Fatalf("%v", got)
		}
		// Where nothing newer is known than an old descriptor, that is shown in part.
		got = keyspaceOf(&clusterpb.Keyspace{}, []*Partition{upper, old}).Partitions()
		if len(got) != 2 || got[0].ID != old.ID || !got[0].Clipped() ||
			!got[0].Span.Equal(lower.Span) || got[1] != upper {
			t.Fatalf("%v", got)
		}
	})
}

// A keyspace that is not in the table was dropped if a younger one was ever there, and may be too
// young itself otherwise.
func TestDropped(t *testing.T) {
	s := bareKnown()
	publish := func(ids ...uint32) *Table {
		s.mu.contents = newContents()
		for _, id := range ids {
			s.mu.contents.keyspaces[keys.KeyspaceID(id)] = &clusterpb.Keyspace{Id: id}
		}
		s.publishLocked(newTable(), s.mu.contents.everything())
		return s.Table()
	}
	for _, c := range []struct {
		there   []uint32
		dropped []keys.KeyspaceID
		not     []keys.KeyspaceID
	}{
		{nil, nil, []keys.KeyspaceID{1, 2}},
		{[]uint32{1, 3}, []keys.KeyspaceID{2}, []keys.KeyspaceID{1, 3, 4}},
		{[]uint32{1}, []keys.KeyspaceID{2, 3}, []keys.KeyspaceID{1, 4}},
		{nil, []keys.KeyspaceID{1, 2, 3}, []keys.KeyspaceID{4}},
	} {
		table := publish(c.there...)
		for _, id := range c.dropped {
			if !table.Dropped(id) {
				t.Errorf("with %v there, %s was not dropped", c.there, id)
			}
		}
		for _, id := range c.not {
			if table.Dropped(id) {
				t.Errorf("with %v there, %s was dropped", c.there, id)
			}
		}
	}
}
