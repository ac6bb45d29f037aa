package tscache

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// readLog is the naive timestamp cache: it keeps every read.
type readLog []readSpan

func (l readLog) read(key []byte) (at hlc.Timestamp) {
	for _, r := range l {
		if r.span.Contains(key) {
			at = hlc.Max(at, r.at)
		}
	}
	return at
}

// The cache never answers below the naive one, never above everything that was read, and stays
// within its bounds.
func TestCacheNeverAnswersTooLow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		budget := NewBudget(rapid.SampledFrom([]int64{0, 100 * slotBytes, 1 << 20}).Draw(t, "budget"))
		c := New(128, budget)
		low := hlc.Timestamp{Wall: rapid.Int64Range(0, 50).Draw(t, "low")}
		c.Reset(low)
		log := readLog{{keys.Span{}, low}}
		highest := low
		key := rapid.Custom(func(t *rapid.T) []byte {
			return fmt.Appendf(nil, "k%03d", rapid.IntRange(0, 400).Draw(t, "key"))
		})
		stamp := rapid.Custom(func(t *rapid.T) hlc.Timestamp {
			return hlc.Timestamp{
				Wall:    rapid.Int64Range(1, 300).Draw(t, "wall"),
				Logical: rapid.Uint32Range(0, 2).Draw(t, "logical"),
			}
		})
		t.Repeat(map[string]func(*rapid.T){
			"point": func(t *rapid.T) {
				k, at := key.Draw(t, "k"), stamp.Draw(t, "at")
				c.Record(k, at)
				log, highest = append(log, readSpan{keys.Point(k), at}), hlc.Max(highest, at)
			},
			"span": func(t *rapid.T) {
				span, at := keys.Span{Start: key.Draw(t, "start")}, stamp.Draw(t, "at")
				if rapid.Bool().Draw(t, "bounded") {
					span.End = key.Draw(t, "end")
				}
				if span.Empty() {
					t.Skip("empty span")
				}
				c.RecordSpan(span, at)
				log, highest = append(log, readSpan{span, at}), hlc.Max(highest, at)
			},
			"release": func(t *rapid.T) {
				if rapid.IntRange(0, 20).Draw(t, "dice") == 0 {
					c.Release()
				}
			},
			"": func(t *rapid.T) {
				k, candidate := key.Draw(t, "k"), stamp.Draw(t, "candidate")
				got := c.Above(k, candidate)
				if got.Less(candidate) || got.LessEq(log.read(k)) {
					t.Fatalf("key %s, candidate %s: may be written at %s, but was read at %s",
						k, candidate, got, log.read(k))
				}
				if candidate != got && highest.Next().Less(got) {
					t.Fatalf("key %s: pushed to %s, nothing was read above %s", k, got, highest)
				}
				if c.Max().Less(highest) {
					t.Fatalf("the maximum is %s, something was read at %s", c.Max(), highest)
				}
				if len(c.slots) > 128 || len(c.spans) > spanLimit {
					t.Fatalf("%d slots, %d spans", len(c.slots), len(c.spans))
				}
				if b := budget.Bytes(); b != int64(len(c.slots))*slotBytes ||
					b > max(budget.limit, firstSlots)*slotBytes {
					t.Fatalf("%d slots are %d bytes of the budget", len(c.slots), b)
				}
			},
		})
	})
}

// With few keys the table tells them apart: a read of one does not push writes of the others.
func TestCacheTellsKeysApart(t *testing.T) {
	c := New(DefaultSlots, nil)
	for i := range 1000 {
		c.Record(fmt.Appendf(nil, "warm-%d", i), hlc.Timestamp{Wall: 1})
	}
	c.Record([]byte("read"), hlc.Timestamp{Wall: 100})
	pushed := 0
	for i := range 1000 {
		candidate := hlc.Timestamp{Wall: 50}
		if c.Above(fmt.Appendf(nil, "other-%d", i), candidate) != candidate {
			pushed++
		}
	}
	if pushed > 20 {
		t.Fatalf("%d of 1000 unrelated keys were pushed", pushed)
	}
}

// Caches of many partitions together grow no further than their budget, but for the first slots of
// each, and what a cache gives back another one may have.
func TestBudgetBoundsAllCaches(t *testing.T) {
	const each, caches = 1 << 10, 10
	budget := NewBudget(3 * each * slotBytes)
	all := make([]Cache, caches)
	fill := func(c *Cache) {
		for i := range 4 * each {
			c.Record(fmt.Appendf(nil, "key-%d", i), hlc.Timestamp{Wall: 100})
		}
	}
	for i := range all {
		all[i] = New(each, budget)
		fill(&all[i])
	}
	if b := budget.Bytes(); b > (3*each+caches*firstSlots)*slotBytes || b < 2*each*slotBytes {
		t.Errorf("%d slots are used", b/slotBytes)
	}
	if n := len(all[caches-1].slots); n >= each {
		t.Errorf("the last cache has %d slots", n)
	}
	for i := range caches - 1 {
		all[i].Release()
	}
	fill(&all[caches-1])
	if n := len(all[caches-1].slots); n != each {
		t.Errorf("the last cache has %d slots when there is room", n)
	}
	all[caches-1].Release()
	if b := budget.Bytes(); b != 0 {
		t.Errorf("%d bytes are used by nothing", b)
	}
}
