package locks

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// modelLock is a lock as the naive model keeps it.
type modelLock struct {
	of                byte
	applied, proposed *State
	sequence          uint64
}

// modelWaiter is one that waits, in the order of coming.
type modelWaiter struct {
	waiter int
	key    string
	until  Until
}

// model is the table as a map and a list.
type model struct {
	locks   map[string]*modelLock
	waiters []modelWaiter
}

func (m *model) release(key string, happened Until) (released []int) {
	m.waiters = slices.DeleteFunc(m.waiters, func(w modelWaiter) bool {
		if w.key != key || w.until > happened {
			return false
		}
		released = append(released, w.waiter)
		return true
	})
	return released
}

// info is of the transactions 1 to 3, of which the first and the last have one id, and two anchors.
func info(of byte) txn.Info {
	i := txn.Info{ID: txn.ID{of}, Begun: hlc.Timestamp{Wall: int64(of)},
		Started: hlc.Timestamp{Wall: int64(of)}, Keyspace: 7, Anchor: []byte("a")}
	if of == 3 {
		i.ID, i.Anchor = txn.ID{1}, []byte("b")
	}
	return i
}

// number is which transaction it is.
func number(x *Transaction[int]) byte { return byte(x.Begun.Wall) }

// TestTableBesideModel: whatever is acquired, applied, released, given up and waited for, the table
// says what a map and a list say.
func TestTableBesideModel(t *testing.T) {
	keys := []string{"a", "b", "c", "d", "e"}
	rapid.Check(t, func(t *rapid.T) {
		var table Table[int]
		m := &model{locks: map[string]*modelLock{}}
		sequence, waiter := uint64(0), 0
		state := func(t *rapid.T) State {
			return State{Kind: kvpb.Mutation_Kind(rapid.IntRange(0, 2).Draw(t, "kind")),
				Prepared: hlc.Timestamp{Wall: rapid.Int64Range(1, 9).Draw(t, "prepared")}}
		}
		key := func(t *rapid.T) string { return rapid.SampledFrom(keys).Draw(t, "key") }
		of := func(t *rapid.T) byte { return rapid.SampledFrom([]byte{1, 2, 3}).Draw(t, "of") }
		same := func(t *rapid.T, what string, got, want []int) {
			if !slices.Equal(got, want) {
				t.Fatalf("%s released %v, the model says %v", what, got, want)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"acquire": func(t *rapid.T) {
				k, x, s := key(t), of(t), state(t)
				l := m.locks[k]
				if l != nil && (l.of != x || l.sequence != 0) {
					t.Skip("not free")
				}
				if l == nil {
					l = &modelLock{of: x}
					m.locks[k] = l
				}
				sequence++
				l.proposed, l.sequence = &s, sequence
				table.Acquire(k, info(x), s, sequence)
			},
			"acquire volatile": func(t *rapid.T) {
				k, x, s := key(t), of(t), state(t)
				l := m.locks[k]
				if l != nil && (l.of != x || l.sequence != 0 || !l.applied.Volatile) {
					t.Skip("not free")
				}
				table.AcquireVolatile(k, info(x), s)
				s.Volatile = true
				m.locks[k] = &modelLock{of: x, applied: &s}
			},
			"mark released": func(t *rapid.T) {
				k := key(t)
				l := m.locks[k]
				if l == nil || l.sequence != 0 || l.applied.Volatile {
					t.Skip("nothing to remove")
				}
				sequence++
				l.sequence = sequence
				table.MarkReleased(table.Get(k), sequence)
			},
			"apply": func(t *rapid.T) {
				k, x, s := key(t), of(t), state(t)
				var want []int
				if l := m.locks[k]; l != nil && l.of != x {
					want = m.release(k, UntilGone)
					delete(m.locks, k)
				}
				m.locks[k] = &modelLock{of: x, applied: &s}
				same(t, "apply", table.Apply(k, info(x), s), append(want, m.release(k, UntilApplied)...))
			},
			"release": func(t *rapid.T) {
				k := key(t)
				want := m.release(k, UntilGone)
				delete(m.locks, k)
				same(t, "release", table.ReleaseKey(k), want)
			},
			"wait": func(t *rapid.T) {
				k := key(t)
				if m.locks[k] == nil {
					t.Skip("free")
				}
				waiter++
				until := Until(rapid.IntRange(0, 1).Draw(t, "until"))
				m.waiters = append(m.waiters, modelWaiter{waiter, k, until})
				table.Wait(table.Get(k), waiter, until)
			},
			"wait together": func(t *rapid.T) {
				k := key(t)
				if m.locks[k] == nil {
					t.Skip("free")
				}
				until := Until(rapid.IntRange(0, 1).Draw(t, "until"))
				var all []int
				for range rapid.IntRange(0, 3).Draw(t, "count") {
					waiter++
					all = append(all, waiter)
					m.waiters = append(m.waiters, modelWaiter{waiter, k, until})
				}
				table.WaitAll(table.Get(k), all, until)
			},
			"take": func(t *rapid.T) {
				odd := func(w int) bool { return w%2 == 1 }
				var want []int
				m.waiters = slices.DeleteFunc(m.waiters, func(w modelWaiter) bool {
					if odd(w.waiter) {
						want = append(want, w.waiter)
					}
					return odd(w.waiter)
				})
				got := table.TakeWaiters(odd)
				sort.Ints(got)
				same(t, "take", got, want)
			},
			"give up": func(t *rapid.T) {
				table.Drain()
				m.waiters = nil
				table.DropInFlight()
				for k, l := range m.locks {
					if l.applied != nil && l.applied.Volatile {
						l.applied = nil
					}
					if l.proposed, l.sequence = nil, 0; l.applied == nil {
						delete(m.locks, k)
					}
				}
			},
			"": func(t *rapid.T) { m.compare(t, &table) },
		})
	})
}

func (m *model) compare(t *rapid.T, table *Table[int]) {
	if table.Len() != len(m.locks) || table.Waiters() != len(m.waiters) {
		t.Fatalf("%d locks and %d waiters, the model has %d and %d", table.Len(), table.Waiters(),
			len(m.locks), len(m.waiters))
	}
	var order []string
	for k := range m.locks {
		order = append(order, k)
	}
	sort.Strings(order)
	describe := func(of byte, applied, proposed *State, sequence uint64) string {
		return fmt.Sprint(of, applied, proposed, sequence)
	}
	var got []string
	changing := 0
	table.Each("", "", func(l *Lock[int]) bool {
		got = append(got, l.Key)
		want := m.locks[l.Key]
		if describe(number(l.Transaction), l.Applied, l.Proposed, l.Sequence) != describe(want.of,
			want.applied, want.proposed, want.sequence) {
			t.Fatalf("key %s: %+v, the model has %+v", l.Key, l, want)
		}
		for wall := range int64(10) {
			at := hlc.Timestamp{Wall: wall}
			blocks := func(s *State) bool {
				return s != nil && s.Kind != kvpb.Mutation_LOCK &&
					s.Prepared.Wall <= wall
			}
			if l.Blocks(at) != (blocks(want.applied) || blocks(want.proposed)) {
				t.Fatalf("key %s at %d: blocks %t", l.Key, wall, l.Blocks(at))
			}
		}
		if l.InFlight() {
			changing++
		}
		return true
	})
	if strings.Join(got, "") != strings.Join(order, "") || table.InFlight() != changing {
		t.Fatalf("keys %v, %d in flight; the model has %v, %d", got, table.InFlight(), order, changing)
	}
	transactions := 0
	for x := range byte(4) {
		named := info(x)
		of := table.Transaction(&named)
		var own, waiting []string
		for _, k := range order {
			if m.locks[k].of == x {
				own = append(own, k)
			}
		}
		if (of == nil) != (len(own) == 0) {
			t.Fatalf("transaction %d: %v, the model has %v", x, of, own)
		}
		if of == nil {
			continue
		}
		transactions++
		for _, w := range m.waiters {
			if l := m.locks[w.key]; l.of == x {
				waiting = append(waiting, fmt.Sprint(w.key, w.waiter))
			}
		}
		var gotOwn, gotWaiting []string
		of.Each(func(l *Lock[int]) bool {
			gotOwn = append(gotOwn, l.Key)
			return true
		})
		sort.Strings(gotOwn)
		of.EachWaiter(func(key string, w int) { gotWaiting = append(gotWaiting, fmt.Sprint(key, w)) })
		if !slices.Equal(gotOwn, own) || !slices.Equal(gotWaiting, waiting) || of.Locks() != len(own) ||
			of.Waiting() != len(waiting) {
			t.Fatalf("transaction %d: %v, waiting %v; the model has %v, %v", x, gotOwn, gotWaiting, own,
				waiting)
		}
	}
	if table.Transactions() != transactions {
		t.Fatalf("%d transactions, the model has %d", table.Transactions(), transactions)
	}
	blocking := 0
	table.EachAwaited(func(x *Transaction[int]) {
		if blocking++; x.Waiting() == 0 {
			t.Fatalf("nothing waits for transaction %d", number(x))
		}
	})
	with := map[byte]bool{}
	for _, w := range m.waiters {
		with[m.locks[w.key].of] = true
	}
	if blocking != len(with) {
		t.Fatalf("%d transactions block, the model has %d", blocking, len(with))
	}
}
