package store

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// Lists in pages, several at a time at several revisions, have the counts that are simply computed,
// wherever they begin, and if pages are asked for again.
func TestCountsOfPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCore(t, 1, nil)
		defer c.close()
		c.elect(c.members[0])
		s := c.members[0].store
		m := newModel()
		name := rapid.StringMatching(`[a-c]{1,3}`)
		for range 4 {
			batch := map[string]bool{}
			for _, name := range rapid.SliceOfN(name, 1, 20).Draw(t, "names") {
				batch[name] = rapid.IntRange(0, 3).Draw(t, "deleted") == 0
			}
			state := map[string]*storepb.KeyValue{}
			for name, kv := range m.states[m.revision] {
				state[name] = kv
			}
			var ops []*storepb.Op
			for name, deleted := range batch {
				if deleted {
					ops = append(ops, Delete([]byte(name)))
					delete(state, name)
				} else {
					ops = append(ops, Put([]byte(name), nil))
					state[name] = &storepb.KeyValue{Key: []byte(name)}
				}
			}
			m.revision = do(t, s, writes(ops...)).Revision
			m.states[m.revision] = state
		}
		if rapid.Bool().Draw(t, "older than the blocks") {
			s.blocks.Reset(m.revision + 1)
		}
		type list struct {
			key, end []byte
			revision uint64
		}
		lists := make([]list, 4)
		for i := range 60 {
			l := &lists[rapid.IntRange(0, len(lists)-1).Draw(t, "list")]
			if len(l.key) == 0 {
				l.key = []byte(name.Draw(t, "key"))
				l.end = []byte(rapid.SampledFrom([]string{"\x00", "c", "d"}).Draw(t, "end"))
				l.revision = m.revision - uint64(rapid.IntRange(0, 2).Draw(t, "back"))
				if m.states[l.revision] == nil {
					l.revision = m.revision
				}
			}
			q := &storepb.Range{Key: l.key, RangeEnd: l.end, Revision: l.revision, Count: true,
				Limit: uint64(rapid.IntRange(1, 5).Draw(t, "limit"))}
			if rapid.IntRange(0, 5).Draw(t, "filtered") == 0 {
				q.MinModRevision = int64(m.revision)
			}
			result, err := s.ReadTxn(t.Context(), writes(&storepb.Op{
				Op: &storepb.Op_Range{Range: q}}).GetTxn())
			if err != nil {
				t.Fatal(err)
			}
			got, want := result.Txn.Results[0].GetRange(), uint64(0)
			for name := range m.states[l.revision] {
				if inRange(name, q.Key, q.RangeEnd) {
					want++
				}
			}
			if got.Count != want {
				t.Fatalf("request %d, %v: count %d, want %d", i, q, got.Count, want)
			}
			switch {
			case rapid.IntRange(0, 4).Draw(t, "again") == 0:
			case got.More:
				l.key = append(bytes.Clone(got.Kvs[len(got.Kvs)-1].Key), 0)
			default:
				l.key = nil
			}
		}
	})
}

// A long list in pages goes through its range twice: for the pages, and for the count of the first.
// Another list of the same, and a page that is asked for again, add little.
func TestPagesCountOnce(t *testing.T) {
	_, s := one(t, nil)
	const total, page = 100_000, 500
	for i := 0; i < total; i += 1000 {
		var ops []*storepb.Op
		for j := range 1000 {
			ops = append(ops, Put(fmt.Appendf(nil, "k%06d", i+j), nil))
		}
		do(t, s, writes(ops...))
	}
	revision := s.Revision()
	put(t, s, "k999999", "later")
	var passed uint64
	var counts tables.RangeCounts
	read := func(key []byte) *storepb.RangeResult {
		var result *storepb.RangeResult
		err := s.ReadWhole(func(r *tables.Reader) (err error) {
			r.Counts = &counts
			before := r.Passed
			result, err = r.RangeAt(&storepb.Range{Key: key, RangeEnd: []byte("l"), Limit: page,
				Revision: revision, Count: true}, revision, tables.Unbounded)
			passed += r.Passed - before
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	keys := [2][]byte{[]byte("k"), []byte("k")}
	for n := 0; n < total; n += page {
		for i := range keys {
			result := read(keys[i])
			if result.Count != uint64(total-n) || result.More != (n+page < total) {
				t.Fatalf("after %d keys: %d are left, more: %v", n, result.Count, result.More)
			}
			if n == total/2 {
				read(keys[i])
			}
			keys[i] = append(slices.Clone(result.Kvs[len(result.Kvs)-1].Key), 0)
		}
	}
	if passed > 4*total {
		t.Errorf("two lists of %d keys went through %d", total, passed)
	}
	if n := len(counts.Mu.Ranges); n > 2 {
		t.Errorf("%d counts are remembered of two lists", n)
	}
}
