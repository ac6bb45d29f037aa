package tables

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// A limit keeps the best of many pairs, though not all of them are in memory at a time.
func TestOrderedRangeDropsPairs(t *testing.T) {
	var q storepb.Range
	q.SortTarget, q.SortOrder, q.Limit = storepb.Range_VALUE, storepb.Range_DESCEND, 3
	s := NewSelection(&q, NewAllowance(1<<20))
	for i := range 100_000 {
		if err := s.add(&storepb.KeyValue{Key: fmt.Appendf(nil, "%06d", i), Version: 1,
			Value: fmt.Appendf(nil, "%06d", i*7919%100_000)}); err != nil {
			t.Fatal(err)
		}
	}
	pairs := s.finish()
	if len(pairs) != 3 || string(pairs[0].Value) != "099999" || string(pairs[2].Value) != "099997" ||
		!s.more || cap(s.pairs) > 10_000 {
		t.Errorf("%v, more: %v, room for %d", pairs, s.more, cap(s.pairs))
	}
}

// What is remembered is bounded.
func TestCountsAreBounded(t *testing.T) {
	var c RangeCounts
	for i := range uint64(3 * maxCounted) {
		c.note(countedRange{[]byte("k"), []byte("l"), i, i}, []byte("k"))
		c.find([]byte("a"), []byte("l"), 0)
	}
	c.note(countedRange{make([]byte, maxCountedBytes), []byte("l"), 1, 1}, nil)
	if len(c.Mu.Ranges) != maxCounted {
		t.Errorf("%d are remembered", len(c.Mu.Ranges))
	}
	if r, ok := c.find([]byte("a"), []byte("l"), 0); !ok || r.count != 0 {
		t.Errorf("what is in use was forgotten: %v, %v", r, ok)
	}
	if _, ok := c.find([]byte("k0"), []byte("l"), 3*maxCounted-1); ok {
		t.Error("a range was found that is not within the one asked for")
	}
}

func FuzzLayout(f *testing.F) {
	l := NewLayout(keys.CorePartition)
	f.Add(l.Version([]byte("a"), 7))
	f.Add(l.Event(3, 4))
	f.Add(l.Lease(5))
	f.Fuzz(func(t *testing.T, key []byte) {
		if k, revision, err := DecodeVersionKey(key); err == nil &&
			!bytes.Equal(l.Version(k, revision)[LocalPrefixLength:], key[LocalPrefixLength:]) {
			t.Fatalf("%x is not the key of %x at %d", key, k, revision)
		}
		_, _, _ = DecodeEventKey(key)
		_, _, _ = decodeNumberKey(key)
		_, _, _ = DecodeApplied(key)
	})
}
