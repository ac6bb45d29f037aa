package route

import (
	"bytes"
	"maps"
	"slices"
	"sort"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// arrangeAll sorts a keyspace's partitions and takes out those that a descriptor of a later
// generation has overtaken.
func arrangeAll(partitions []*Partition) []*Partition {
	sort.Slice(partitions, func(i, j int) bool {
		a, b := partitions[i].Descriptor, partitions[j].Descriptor
		if c := bytes.Compare(a.Start, b.Start); c != 0 {
			return c < 0
		}
		return a.Generation < b.Generation
	})
	kept := partitions[:0]
next:
	for _, p := range partitions {
		for len(kept) > 0 {
			last := kept[len(kept)-1].Descriptor
			if bytes.Compare(last.End, p.Descriptor.Start) <= 0 {
				break
			}
			if last.Generation > p.Descriptor.Generation {
				continue next
			}
			kept = kept[:len(kept)-1]
		}
		kept = append(kept, p)
	}
	return kept
}

// segment is a part of a keyspace, between two of the keys a to z.
type segment struct {
	from, to   byte
	generation uint64
}

func (s segment) descriptor(id uint64) *clusterpb.Partition {
	prefix := keys.KeyspacePrefix(1)
	d := &clusterpb.Partition{Id: id, Keyspace: 1, PrefixLength: keys.KeyspacePrefixLength,
		Generation: s.generation, Membership: 1, Start: prefix, End: keys.PrefixEnd(prefix),
		Replicas: []*clusterpb.Replica{{Node: 1, Replica: 1, Role: clusterpb.ReplicaRole_VOTER}}}
	if s.from > 'a' {
		d.Start = append(bytes.Clone(prefix), s.from)
	}
	if s.to <= 'z' {
		d.End = append(bytes.Clone(prefix), s.to)
	}
	return d
}

// While partitions split and merge, and the news of it come late, twice and in any order, the table
// is the one that would be made from all that is known; and when all news have come it is what is.
func TestLayoutAgainstAllAnew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := bareSender()
		s.mu.cluster = 1
		s.merge(&clusterpb.TableUpdate{Keyspaces: []*clusterpb.Keyspace{{Id: 1, Name: "k",
			Partitioning: clusterpb.Partitioning_RANGE}}})
		now, next := map[uint64]segment{1: {'a', 'z' + 1, 1}}, uint64(2)
		var news []*clusterpb.TableUpdate
		tell := func(removed []uint64, ids ...uint64) {
			u := &clusterpb.TableUpdate{RemovedPartitions: removed}
			for _, id := range ids {
				u.Partitions = append(u.Partitions, now[id].descriptor(id))
			}
			news = append(news, u)
		}
		tell(nil, 1)
		for range rapid.IntRange(0, 20).Draw(t, "steps") {
			ids := slices.Sorted(maps.Keys(now))
			id := rapid.SampledFrom(ids).Draw(t, "partition")
			left := now[id]
			right := slices.IndexFunc(ids, func(id uint64) bool { return now[id].from == left.to })
			switch {
			case rapid.Bool().Draw(t, "split") && left.to-left.from > 1:
				at := byte(rapid.IntRange(int(left.from)+1, int(left.to)-1).Draw(t, "at"))
				now[id] = segment{left.from, at, left.generation + 1}
				now[next] = segment{at, left.to, left.generation + 1}
				tell(nil, id, next)
				next++
			case right >= 0:
				other := now[ids[right]]
				now[id] = segment{left.from, other.to, max(left.generation, other.generation) + 1}
				delete(now, ids[right])
				tell([]uint64{ids[right]}, id)
			}
		}
		// Some news are heard before others; what is removed never comes back.
		gone := map[uint64]bool{}
		order := rapid.Permutation(news).Draw(t, "order")
		for i, u := range append(order, news...) {
			heard := &clusterpb.TableUpdate{RemovedPartitions: u.RemovedPartitions}
			for _, id := range u.RemovedPartitions {
				gone[id] = true
			}
			for _, d := range u.Partitions {
				if !gone[d.Id] {
					heard.Partitions = append(heard.Partitions, d)
				}
			}
			if rapid.Bool().Draw(t, "by an answer") && len(heard.RemovedPartitions) == 0 {
				s.learnPartitions(heard.Partitions)
			} else {
				s.merge(heard)
			}
			checkLayout(t, s, i)
		}
		k := s.Table().KeyspaceByName("k")
		if !k.Complete() || k.Len() != len(now) {
			t.Fatalf("complete %t, %d partitions, want %d", k.Complete(), k.Len(), len(now))
		}
		for id, part := range now {
			if p := k.ByKey([]byte{part.to - 1}); p == nil || p.ID != keys.PartitionID(id) {
				t.Fatalf("%c is in %v, want %d", part.to-1, p, id)
			}
		}
	})
}

// checkLayout compares the table with what all descriptors together make.
func checkLayout(t *rapid.T, s *Sender, step int) {
	k := s.Table().KeyspaceByID(1)
	shown := k.Partitions()
	want := arrangeAll(slices.Collect(maps.Values(s.mu.contents.partitions)))
	complete, at := len(want) > 0, []byte(nil)
	for i, p := range shown {
		if i > 0 && bytes.Compare(shown[i-1].Descriptor.End, p.Descriptor.Start) > 0 {
			t.Fatalf("step %d: %v and %v overlap", step, shown[i-1].Descriptor, p.Descriptor)
		}
		complete = complete && bytes.Equal(at, p.Span.Start)
		at = p.Span.End
		if p.hint == nil || len(p.voters) != 1 {
			t.Fatalf("step %d: %v has no hint or no voters", step, p.Descriptor)
		}
	}
	if complete = complete && len(at) == 0; complete != k.Complete() {
		t.Fatalf("step %d: Complete is %t", step, k.Complete())
	}
	// What is shown of the highest generation at each key is the same. (Where an older one is in the
	// way of nothing, it depends on the order in which they came.)
	for _, p := range want {
		if !slices.Contains(shown, p) {
			for _, o := range shown {
				if o.Generation >= p.Generation && o.Span.Overlaps(p.Span) {
					p = nil
					break
				}
			}
			if p != nil {
				t.Fatalf("step %d: %v is not shown, and nothing is in its way", step, p.Descriptor)
			}
		}
	}
	if hidden := len(s.mu.contents.partitions) - len(shown); hidden !=
		len(s.mu.contents.layouts[1].hidden) {
		t.Fatalf("step %d: %d are hidden, want %d", step, len(s.mu.contents.layouts[1].hidden), hidden)
	}
}
