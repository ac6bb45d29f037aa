package table

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// segment is a partition as it was at some time: a part of a hash number, or of a range keyspace,
// between two of the keys a to z.
type segment struct {
	id                     uint64
	hash                   uint32
	from, to               byte
	generation, membership uint64
}

// hashed is how many hash numbers the keyspace of a test has; 0: it is of ranges.
func (s segment) descriptor(hashed uint32) *clusterpb.Partition {
	prefix, n := keys.KeyspacePrefix(1), uint32(keys.KeyspacePrefixLength)
	if hashed > 0 {
		prefix, n = keys.HashPrefix(1, uint16(s.hash)), keys.HashPrefixLength
	}
	d := &clusterpb.Partition{Id: s.id, Keyspace: 1, Hash: s.hash, PrefixLength: n,
		Generation: s.generation, Membership: s.membership,
		Start: prefix, End: keys.PrefixEnd(prefix),
		Replicas: []*clusterpb.Replica{{Node: 1, Replica: 1, Role: clusterpb.ReplicaRole_VOTER}}}
	if s.from > 'a' {
		d.Start = append(bytes.Clone(prefix), s.from)
	}
	if s.to <= 'z' {
		d.End = append(bytes.Clone(prefix), s.to)
	}
	return d
}

// heard is what a table must show: at each key the newest descriptor that was ever heard of, found
// by looking at all of them.
type heard []segment

func (h heard) at(hash uint32, key byte) (newest segment) {
	for _, s := range h {
		if s.hash == hash && s.from <= key && key < s.to && (s.generation > newest.generation ||
			s.generation == newest.generation && s.membership > newest.membership) {
			newest = s
		}
	}
	return newest
}

// history is how the partitions of a keyspace split, merge and move.
type history struct {
	hashed uint32
	now    map[uint64]segment
	next   uint64
	// news are what there was to hear, in order.
	news []news
}

// news are descriptors that belong together, and partitions that are no more.
type news struct {
	now  []segment
	gone []uint64
}

func newHistory(hashed uint32) *history {
	h := &history{hashed: hashed, now: map[uint64]segment{}, next: 1}
	for n := range max(1, hashed) {
		h.now[h.next] = segment{h.next, n, 'a', 'z' + 1, 1, 1}
		h.news = append(h.news, news{now: []segment{h.now[h.next]}})
		h.next++
	}
	return h
}

// step lets a partition split, merge with its neighbour, or change its replicas.
func (h *history) step(t *rapid.T) {
	ids := slices.Sorted(maps.Keys(h.now))
	left := h.now[rapid.SampledFrom(ids).Draw(t, "partition")]
	right := slices.IndexFunc(ids, func(id uint64) bool {
		return h.now[id].hash == left.hash && h.now[id].from == left.to
	})
	switch what := rapid.IntRange(0, 3).Draw(t, "what"); {
	case what < 2 && left.to-left.from > 1:
		child := left
		at := byte(rapid.IntRange(int(left.from)+1, int(left.to)-1).Draw(t, "at"))
		left.to, left.generation = at, left.generation+1
		child.id, child.from, child.generation = h.next, at, left.generation
		h.next++
		h.now[left.id], h.now[child.id] = left, child
		h.news = append(h.news, news{now: []segment{left, child}})
	case what == 2 && right >= 0:
		other := h.now[ids[right]]
		left.to, left.generation = other.to, max(left.generation, other.generation)+1
		h.now[left.id] = left
		delete(h.now, other.id)
		h.news = append(h.news, news{now: []segment{left}, gone: []uint64{other.id}})
	default:
		left.membership++
		h.now[left.id] = left
		h.news = append(h.news, news{now: []segment{left}})
	}
}

// While partitions split, merge and move, and the news of it come late, twice, in part and in any
// order, by the table stream and by refusals, the table shows at each key the newest that was heard
// of. So it never has a hole or an overlap, and when all news have come it shows what is.
func TestTableShowsTheNewestOfEachKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(uint32(rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "hash")))
		first := len(h.news)
		for range rapid.IntRange(0, 25).Draw(t, "steps") {
			h.step(t)
		}
		s, keyspace := bareKnown(), &clusterpb.Keyspace{Id: 1, Name: "k",
			Partitioning: clusterpb.Partitioning_RANGE, HashPartitions: h.hashed}
		if h.hashed > 0 {
			keyspace.Partitioning = clusterpb.Partitioning_HASH
		}
		s.mu.cluster = 1
		var known heard
		hear := func(i int, n news) {
			u := &clusterpb.TableUpdate{RemovedPartitions: n.gone}
			for _, segment := range n.now {
				if rapid.IntRange(0, 4).Draw(t, "lost") > 0 || i < first || i >= len(h.news) {
					known = append(known, segment)
					u.Partitions = append(u.Partitions, segment.descriptor(h.hashed))
				}
			}
			switch how := rapid.IntRange(0, 9).Draw(t, "how"); {
			case how < 4 && len(n.gone) == 0 && i >= first:
				s.LearnPartitions(u.Partitions)
			case how == 9 && i >= first:
				// Another server sends a whole table, of what the core knows.
				whole := NewStaged()
				u.Keyspaces = append(u.Keyspaces, keyspace)
				if err := whole.Apply(u); err != nil {
					t.Fatal(err)
				}
				if !s.Replace(whole) {
					t.Fatal("a table was not taken")
				}
			default:
				s.Merge(u)
			}
			checkTable(t, s, known, h.hashed)
		}
		s.Merge(&clusterpb.TableUpdate{Keyspaces: []*clusterpb.Keyspace{keyspace}})
		for i := range first {
			hear(i, h.news[i])
		}
		late := rapid.Permutation(h.news[first:]).Draw(t, "order")
		for i, n := range late[:rapid.IntRange(0, len(late)).Draw(t, "early")] {
			hear(first+i, n)
		}
		for _, n := range h.news {
			hear(len(h.news), n)
		}
		for _, segment := range h.now {
			p := s.Table().KeyspaceByID(1).ByHash(segment.hash, []byte{segment.from})
			if h.hashed == 0 {
				p = s.Table().KeyspaceByID(1).ByKey([]byte{segment.from})
			}
			if p == nil || uint64(p.ID) != segment.id || p.Clipped() ||
				p.Descriptor.Membership != segment.membership {
				t.Fatalf("%v, want %v", p, segment)
			}
		}
		if all, want := s.Table().KeyspaceByID(1).Len(), len(h.now); all != want {
			t.Fatalf("%d partitions, want %d", all, want)
		}
		if known := len(s.mu.contents.partitions); known != len(h.now) {
			t.Fatalf("%d partitions are kept, of %d that there are", known, len(h.now))
		}
		// With the keyspace everything goes.
		s.Merge(&clusterpb.TableUpdate{RemovedKeyspaces: []uint32{1}})
		if len(s.mu.contents.partitions)+len(s.mu.contents.layouts) > 0 {
			t.Fatalf("%d partitions of a keyspace that is gone", len(s.mu.contents.partitions))
		}
	})
}

// checkTable compares the table with what was heard.
func checkTable(t *rapid.T, s *Known, known heard, hashed uint32) {
	k := s.Table().KeyspaceByID(1)
	complete := true
	var parts []*Partition
	for hash := range max(1, hashed) {
		for key := byte('a'); key <= 'z'; key++ {
			want, at := known.at(hash, key), []byte{key}
			complete = complete && want.id != 0
			p := k.at(place{hash, at})
			if want.id == 0 {
				if p != nil {
					t.Fatalf("%c of %d: %v, want none", key, hash, p)
				}
				continue
			}
			if p == nil || uint64(p.ID) != want.id || p.Generation != want.generation ||
				p.Descriptor.Membership != want.membership {
				t.Fatalf("%c of %d: %v, want %v", key, hash, p, want)
			}
			if p.Hints == nil || len(p.Voters) != 1 ||
				!keys.PartitionUserSpan(p.Descriptor).ContainsSpan(p.Span) {
				t.Fatalf("%v is not whole", p)
			}
			if hashed > 0 && k.ByHash(hash, at) != p {
				t.Fatalf("%c of %d: %v by hash", key, hash, k.ByHash(hash, at))
			}
			if before := k.Before(hash, []byte{key, 0}); before != p {
				t.Fatalf("%c of %d: %v is before its end", key, hash, before)
			}
			if !slices.Contains(parts, p) {
				parts = append(parts, p)
			}
		}
	}
	if complete != k.Complete() {
		t.Fatalf("Complete is %t", k.Complete())
	}
	if !slices.Equal(k.Partitions(), parts) {
		t.Fatalf("%v are shown, want %v", k.Partitions(), parts)
	}
	clipped := map[*Partition]int{}
	for _, p := range parts {
		if p.Clipped() {
			clipped[p.clip.of]++
		}
	}
	if of := s.mu.contents.layouts[1].clipped; !maps.Equal(of, clipped) {
		t.Fatalf("%v are clipped, want %v", of, clipped)
	}
	if complete {
		checkOverlapping(t, k, parts, hashed)
	}
}

// checkOverlapping compares Overlapping with looking at all.
func checkOverlapping(t *rapid.T, k *Keyspace, parts []*Partition, hashed uint32) {
	bound := rapid.SampledFrom([]string{"", "a", "c", "k", "m0", "z", "zz"})
	span := keys.Span{Start: []byte(bound.Draw(t, "start")), End: []byte(bound.Draw(t, "end"))}
	if span.Empty() {
		return
	}
	var over []*Partition
	for _, p := range parts {
		if p.Span.Overlaps(span) {
			over = append(over, p)
		}
	}
	if got := k.Overlapping(span); !slices.Equal(got, over) {
		t.Fatalf("%v overlap %s, want %v", got, span, over)
	}
}

// String makes failures readable.
func (p *Partition) String() string {
	if p == nil {
		return "none"
	}
	return fmt.Sprintf("%s@%d%s", p.ID, p.Generation, p.Span)
}
