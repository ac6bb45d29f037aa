package store

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// A lone range of one key is read on a way of its own, and comes to what the same range comes to as
// a span in a transaction with a comparison.
func TestSoleRangeIsLikeAnyOther(t *testing.T) {
	c := newCore(t, 1, nil)
	defer c.close()
	c.elect(c.members[0])
	s := c.members[0].store
	names := [][]byte{[]byte("a"), []byte("b"), []byte("c"), []byte("d")}
	do := func(ops ...*storepb.Op) {
		t.Helper()
		if _, err := s.Do(t.Context(), If(nil, ops, nil)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		name := names[i%3]
		if i%7 == 6 {
			do(Delete(name))
		} else {
			do(Put(name, bytes.Repeat([]byte("v"), i)))
		}
	}
	if _, err := s.Do(t.Context(), Compact(5)); err != nil {
		t.Fatal(err)
	}
	found := 0
	for range 5000 {
		q := &storepb.Range{Key: names[rand.IntN(len(names))], Count: true,
			KeysOnly: rand.IntN(4) == 0, CountOnly: rand.IntN(4) == 0,
			Limit:      []uint64{0, 1, 2, 1 << 40}[rand.IntN(4)],
			SortOrder:  storepb.Range_SortOrder(rand.IntN(3)),
			SortTarget: storepb.Range_SortTarget(rand.IntN(5))}
		if rand.IntN(2) == 0 {
			q.Revision = uint64(int64(rand.IntN(25) - 2))
		}
		for _, bound := range []*int64{&q.MinModRevision, &q.MaxModRevision, &q.MinCreateRevision,
			&q.MaxCreateRevision} {
			if rand.IntN(4) == 0 {
				*bound = int64(rand.IntN(22))
			}
		}
		span := proto.CloneOf(q)
		span.RangeEnd = append(bytes.Clone(q.Key), 0)
		op := func(q *storepb.Range) []*storepb.Op {
			return []*storepb.Op{{Op: &storepb.Op_Range{Range: q}}}
		}
		sole := &storepb.Txn{Success: op(q)}
		if tables.SoleRange(sole) != q {
			t.Fatal("the range is not taken for a lone one")
		}
		got, err := s.ReadTxn(t.Context(), sole)
		want, wantErr := s.ReadTxn(t.Context(), &storepb.Txn{
			Compare: []*storepb.Compare{Absent([]byte("nothing"))}, Success: op(span)})
		if (err == nil) != (wantErr == nil) || errors.Is(err, command.ErrCompacted) != errors.Is(wantErr,
			command.ErrCompacted) || errors.Is(err, command.ErrFutureRevision) != errors.Is(wantErr,
			command.ErrFutureRevision) {
			t.Fatalf("%v: error %v, want %v", q, err, wantErr)
		}
		if !proto.Equal(got, want) {
			t.Fatalf("%v:\n%v\nwant\n%v", q, got, want)
		}
		if err == nil {
			found += len(got.Txn.Results[0].GetRange().GetKvs())
		}
	}
	if found == 0 {
		t.Error("no range had a pair")
	}
}

// What is no lone range, or not a valid one, is not taken for one.
func TestSoleRangeIsNoMore(t *testing.T) {
	get := func(key string) *storepb.Op {
		return &storepb.Op{Op: &storepb.Op_Range{Range: &storepb.Range{Key: []byte(key)}}}
	}
	for name, txn := range map[string]*storepb.Txn{
		"nil":          nil,
		"empty":        {},
		"two":          {Success: []*storepb.Op{get("a"), get("b")}},
		"no key":       {Success: []*storepb.Op{get("")}},
		"no operation": {Success: []*storepb.Op{nil}},
		"a put":        {Success: []*storepb.Op{Put([]byte("a"), nil)}},
		"a failure":    {Success: []*storepb.Op{get("a")}, Failure: []*storepb.Op{get("b")}},
		"a comparison": {Success: []*storepb.Op{get("a")},
			Compare: []*storepb.Compare{Absent([]byte("a"))}},
	} {
		if tables.SoleRange(txn) != nil {
			t.Errorf("%s: it is taken for a lone range", name)
		}
	}
}
