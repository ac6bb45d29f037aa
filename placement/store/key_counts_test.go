package store

import (
	"context"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// Counts at the newest revisions are those that are simply computed, whatever creates and deletes
// keys, after a member was started again as well.
func TestCountsAtTheNewestRevision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCore(t, 1, nil)
		defer c.close()
		c.elect(c.members[0])
		name := rapid.StringMatching(`[a-d]{1,3}`)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			s := c.members[0].store
			switch rapid.IntRange(0, 8).Draw(t, "what") {
			case 0, 1, 2:
				lease := int64(0)
				if rapid.IntRange(0, 3).Draw(t, "leased") == 0 {
					lease = 7
					_, _ = s.DoOwn(context.Background(), Grant(lease, 1_000_000))
				}
				do(t, s, writes(PutLeased([]byte(name.Draw(t, "key")), nil, lease)))
			case 3:
				do(t, s, writes(&storepb.Op{Op: &storepb.Op_DeleteRange{DeleteRange: &storepb.DeleteRange{
					Key: []byte(name.Draw(t, "key")), RangeEnd: []byte(name.Draw(t, "end"))}}}))
			case 4:
				_, _ = s.DoOwn(context.Background(), Revoke(7))
			case 5:
				if rapid.IntRange(0, 3).Draw(t, "again") == 0 {
					reopen(t, c.members[0])
					break
				}
				_, _ = s.DoOwn(context.Background(), Compact(s.Revision()))
			default:
				q := &storepb.Range{Key: []byte(name.Draw(t, "key")), RangeEnd: []byte{0}, Count: true}
				if rapid.Bool().Draw(t, "bounded") {
					q.RangeEnd = []byte(name.Draw(t, "end"))
				}
				switch rapid.IntRange(0, 2).Draw(t, "kind") {
				case 0:
					q.CountOnly = true
				case 1:
					q.Limit = uint64(rapid.IntRange(1, 5).Draw(t, "limit"))
				}
				if at := s.Revision() - uint64(rapid.IntRange(0, 2).Draw(t, "back")); at >= s.Compacted() &&
					at > 0 && at <= s.Revision() {
					q.Revision = at
				}
				result, err := s.ReadTxn(context.Background(),
					writes(&storepb.Op{Op: &storepb.Op_Range{Range: q}}).GetTxn())
				if err != nil {
					t.Fatal(err)
				}
				want := uint64(0)
				err = s.ReadState(func(r *tables.Reader) error {
					at, err := r.CheckRevision(q.Revision)
					if err != nil {
						return err
					}
					return r.Scan(command.Span(q.Key, q.RangeEnd), at, func(*storepb.KeyValue) (bool, error) {
						want++
						return true, nil
					})
				})
				if got := result.Txn.Results[0].GetRange(); err != nil || got.Count != want {
					t.Fatalf("%v: %v, want a count of %d; %v", q, got, want, err)
				}
			}
		}
	})
}

// After the first one, a limited range, and a count, of many keys go through few.
func TestLimitedRangesGoThroughFewKeys(t *testing.T) {
	_, s := one(t, nil)
	const total = 20_000
	for i := 0; i < total; i += 1000 {
		var ops []*storepb.Op
		for j := range 1000 {
			ops = append(ops, Put(fmt.Appendf(nil, "k%06d", i+j), nil))
		}
		do(t, s, writes(ops...))
	}
	read := func(from, deleted int, limit uint64) (passed uint64) {
		t.Helper()
		err := s.ReadWhole(func(r *tables.Reader) error {
			r.Blocks = s.blocks
			result, err := r.RangeAt(&storepb.Range{Key: fmt.Appendf(nil, "k%06d", from),
				RangeEnd: []byte("l"), Limit: limit, Count: true, CountOnly: limit == 0}, r.Meta.Revision,
				tables.Unbounded)
			if want := uint64(total - from - deleted); err == nil && result.Count != want {
				t.Errorf("from %d on: %d keys, want %d", from, result.Count, want)
			}
			passed = r.Passed
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return passed
	}
	if n := read(0, 0, 0); n < total {
		t.Fatalf("the first count went through %d keys", n)
	}
	do(t, s, writes(Delete(fmt.Appendf(nil, "k%06d", total-1))))
	for i := range 100 {
		if n := read(i*197%total, 1, uint64(i%2)*10); n > 4000 {
			t.Errorf("count %d went through %d keys", i, n)
		}
	}
}
