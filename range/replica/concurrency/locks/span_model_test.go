package locks

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// interval is a span that a transaction holds, as the naive model keeps it: one of a list.
type interval struct {
	of         byte
	start, end string
}

func (i interval) contains(key string) bool {
	return i.start <= key &&
		(i.end == "" || key < i.end)
}

// intervals is the naive model.
type intervals struct {
	held    []interval
	waiters []modelWaiter
	waitFor map[int]byte
	locked  map[string]byte
}

// at is the transaction in whose span a key lies; 0: none.
func (m *intervals) at(key string) byte {
	for _, i := range m.held {
		if i.contains(key) {
			return i.of
		}
	}
	return 0
}

// TestSpansBesideModel: whatever spans are held and ended, beside locks of keys, a key is held by
// the one that a list of intervals says, and waiters for what has ended are released.
func TestSpansBesideModel(t *testing.T) {
	bounds := []string{"", "a", "b", "c", "d", "e"}
	probes := []string{"", "0", "a", "a0", "b", "b0", "c", "c0", "d", "d0", "e", "e0"}
	rapid.Check(t, func(t *rapid.T) {
		var table Table[int]
		m := &intervals{waitFor: map[int]byte{}, locked: map[string]byte{}}
		waiter := 0
		state := State{Kind: kvpb.Mutation_LOCK, Prepared: hlc.Timestamp{Wall: 1}}
		of := func(t *rapid.T) byte { return rapid.SampledFrom([]byte{1, 2, 3}).Draw(t, "of") }
		release := func(gone func(of byte) bool) (want []int) {
			m.waiters = slices.DeleteFunc(m.waiters, func(w modelWaiter) bool {
				if gone(m.waitFor[w.waiter]) {
					want = append(want, w.waiter)
					return true
				}
				return false
			})
			return want
		}
		t.Repeat(map[string]func(*rapid.T){
			"hold": func(t *rapid.T) {
				x, start, end := of(t), rapid.SampledFrom(bounds).Draw(t,
					"start"), rapid.SampledFrom(bounds).Draw(t, "end")
				if end != "" && start >= end {
					t.Skip("empty")
				}
				free := true
				for _, p := range probes {
					i := interval{x, start, end}
					free = free && (!i.contains(p) || m.at(p) == 0 || m.at(p) == x)
				}
				others := false
				table.EachSpanIn(start, end, func(l *Lock[int]) bool {
					others = others || number(l.Transaction) != x
					return true
				})
				if others == free {
					t.Fatalf("[%q, %q): others %t, the model says free %t", start, end, others, free)
				}
				count, bytes := table.SpanNeed(start, end)
				before, size := table.Spans(), table.SpanBytes()
				table.AcquireSpan(start, end, info(x), state)
				if table.Spans() != before+count || table.SpanBytes() != size+bytes {
					t.Fatalf("%d spans of %d bytes, %d of %d more than before were announced", table.Spans(),
						table.SpanBytes(), count, bytes)
				}
				for i, part := range bounds {
					next := append(bounds, "")[i+1]
					if (interval{x, start, end}).contains(part) && m.at(part) == 0 {
						m.held = append(m.held, interval{x, part, next})
					}
				}
			},
			"lock a key": func(t *rapid.T) {
				k, x := rapid.SampledFrom(probes[1:]).Draw(t, "key"), of(t)
				if m.locked[k] != 0 && m.locked[k] != x {
					t.Skip("locked")
				}
				table.AcquireVolatile(k, info(x), state)
				m.locked[k] = x
			},
			"unlock a key": func(t *rapid.T) {
				k := rapid.SampledFrom(probes[1:]).Draw(t, "key")
				if released := table.ReleaseKey(k); len(released) > 0 {
					t.Fatalf("released %v with a key that has no waiters", released)
				}
				delete(m.locked, k)
			},
			"wait": func(t *rapid.T) {
				k := rapid.SampledFrom(probes).Draw(t, "key")
				l := table.SpanAt(k)
				if l == nil {
					t.Skip("free")
				}
				waiter++
				m.waiters = append(m.waiters, modelWaiter{waiter: waiter, key: k})
				m.waitFor[waiter] = m.at(k)
				table.Wait(l, waiter, UntilGone)
			},
			"end": func(t *rapid.T) {
				x := of(t)
				want := release(func(of byte) bool { return of == x })
				m.held = slices.DeleteFunc(m.held, func(i interval) bool { return i.of == x })
				var own []*Lock[int]
				named := info(x)
				if of := table.Transaction(&named); of != nil {
					of.EachSpan(func(l *Lock[int]) { own = append(own, l) })
				}
				var got []int
				for _, l := range own {
					if !table.Has(l) {
						t.Fatalf("[%q, %q) is not in the table", l.Key, l.End)
					}
					got = append(got, table.Release(l)...)
					if table.Has(l) {
						t.Fatalf("[%q, %q) is in the table still", l.Key, l.End)
					}
				}
				if slices.Sort(got); !slices.Equal(got, want) {
					t.Fatalf("released %v, the model says %v", got, want)
				}
			},
			"give up": func(t *rapid.T) {
				table.Drain()
				table.DropInFlight()
				m.held, m.waiters = nil, nil
				clear(m.locked)
			},
			"": func(t *rapid.T) {
				for _, p := range probes {
					got := byte(0)
					if l := table.SpanAt(p); l != nil {
						got = number(l.Transaction)
					}
					if got != m.at(p) {
						t.Fatalf("%q is held by %d, the model says %d", p, got, m.at(p))
					}
				}
				if table.Empty() != (len(m.held) == 0 && len(m.locked) == 0) ||
					table.Len() != len(m.locked) ||
					table.Waiters() != len(m.waiters) {
					t.Fatalf("empty %t, %d keys, %d wait; the model has %v, %v, %v",
						table.Empty(), table.Len(), table.Waiters(), m.held, m.locked, m.waiters)
				}
				spans := 0
				table.EachTransaction(func(x *Transaction[int]) bool { spans += x.Spans(); return true })
				if spans != table.Spans() || table.Spans() == 0 != (len(m.held) == 0) {
					t.Fatalf("%d spans of transactions, %d in the table, the model has %v",
						spans, table.Spans(), m.held)
				}
			},
		})
	})
}
