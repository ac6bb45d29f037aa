package store

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
	"github.com/tidemarkdb/tidemark/range/engine"
)

// fillAndDelete puts so many keys, and deletes them.
func fillAndDelete(t fataler, s *Store, format string, n int) {
	t.Helper()
	for i := 0; i < n; {
		puts, deletes := writes(), writes()
		for ; i < n && len(puts.GetTxn().Success) < 500; i++ {
			key := fmt.Appendf(nil, format, i)
			puts.GetTxn().Success = append(puts.GetTxn().Success, Put(key, []byte("value")))
			deletes.GetTxn().Success = append(deletes.GetTxn().Success,
				&storepb.Op{Op: &storepb.Op_DeleteRange{DeleteRange: &storepb.DeleteRange{Key: key}}})
		}
		do(t, s, puts)
		do(t, s, deletes)
	}
}

// firstOf is the first key of a prefix, or with byCreation the oldest, at a revision; and how many
// keys the walk has come to.
func firstOf(
	t fataler, s *Store, prefix string, revision uint64, byCreation bool,
) (key string, passed uint64) {
	t.Helper()
	q := &storepb.Range{Key: []byte(prefix), RangeEnd: keyAfterPrefix([]byte(prefix)), Limit: 1}
	if byCreation {
		q.SortTarget, q.SortOrder = storepb.Range_CREATE, storepb.Range_ASCEND
	}
	if err := s.ReadState(func(r *tables.Reader) error {
		at, err := r.CheckRevision(revision)
		if err != nil {
			return err
		}
		result, err := r.RangeAt(q, at, tables.Unbounded)
		if err == nil && len(result.Kvs) > 0 {
			key = string(result.Kvs[0].Key)
		}
		passed = r.Passed
		return err
	}); err != nil {
		t.Fatalf("first of %q: %v", prefix, err)
	}
	return key, passed
}

func keyAfterPrefix(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	end[len(end)-1]++
	return end
}

// TestWalksPassDeletedKeysOnce: the first key behind many deleted ones is found again without
// passing them, in any order of the answer, while a queue goes on at both ends and keys are created
// among the deleted ones. What was there before can be read still.
func TestWalksPassDeletedKeysOnce(t *testing.T) {
	const deleted = 5000
	_, s := one(t, func(c *Config) { c.keyCounts, c.HistoryFor = nil, -1 })
	const few = 200
	expect := func(what, want string, most uint64, byCreation bool) {
		t.Helper()
		key, passed := firstOf(t, s, "q/", 0, byCreation)
		if key != want || passed > most {
			t.Fatalf("%s: %q after %d keys, want %q after %d at most", what, key, passed, want, most)
		}
	}
	put(t, s, "q/0000001", "early")
	early := s.Revision()
	fillAndDelete(t, s, "q/%07d", deleted)
	expect("nothing is left", "", 2*deleted, false)
	expect("nothing is left, again", "", few, true)
	put(t, s, "q/1000000", "last")
	expect("behind the deleted keys", "q/1000000", few, false)
	expect("the oldest", "q/1000000", few, true)
	// A queue: what is first goes, and more comes at the end.
	for i := 1; i < 1000; i++ {
		put(t, s, fmt.Sprintf("q/%07d", 1000000+i), "")
		do(t, s, writes(&storepb.Op{Op: &storepb.Op_DeleteRange{DeleteRange: &storepb.DeleteRange{
			Key: fmt.Appendf(nil, "q/%07d", 1000000+i-1)}}}))
		expect("a queue", fmt.Sprintf("q/%07d", 1000000+i), few, i%2 == 0)
	}
	// Candidates, whose names are anywhere.
	for i := range 2000 {
		key := fmt.Sprintf("q/%07d", i*7919%deleted)
		put(t, s, key, "")
		expect("created among the deleted", key, few, false)
		do(t, s, writes(&storepb.Op{Op: &storepb.Op_DeleteRange{DeleteRange: &storepb.DeleteRange{
			Key: []byte(key)}}}))
		expect("and deleted", "q/1000999", 5*few, false)
	}
	if key, _ := firstOf(t, s, "q/", early, false); key != "q/0000001" {
		t.Errorf("what was there before is %q", key)
	}
}

// BenchmarkFirstBehindDeleted reads the oldest key of a prefix, as queues and elections do, behind
// keys that were deleted and are not compacted yet.
func BenchmarkFirstBehindDeleted(b *testing.B) {
	for _, deleted := range []int{0, 3_000, 300_000} {
		b.Run(fmt.Sprint(deleted), func(b *testing.B) {
			state, err := engine.OpenState(engine.Options{FS: vfs.NewMem(), Dir: "state",
				CacheBytes: 256 << 20, MemTableBytes: 64 << 20})
			if err != nil {
				b.Fatal(err)
			}
			c := &core{t: b, term: 1}
			m := &member{core: c, id: 1, state: state}
			if m.store, err = New(Config{State: state, Group: m, Random: rand.Reader,
				HistoryFor: -1}); err != nil {
				b.Fatal(err)
			}
			c.members = []*member{m}
			c.elect(m)
			defer c.close()
			fillAndDelete(b, m.store, "q/%07d", deleted)
			put(b, m.store, "q/1000000", "last")
			firstOf(b, m.store, "q/", 0, true) // which passes all of them
			for b.Loop() {
				if key, _ := firstOf(b, m.store, "q/", 0, true); key != "q/1000000" {
					b.Fatal(key)
				}
			}
		})
	}
}
