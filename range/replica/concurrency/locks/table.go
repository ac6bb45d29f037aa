package locks

import (
	"cmp"

	"github.com/RaduBerinde/btreemap"

	"github.com/tidemarkdb/tidemark/txn"
)

// Table holds a partition's locks. W is the type of waiters. The zero Table is empty and ready. It
// is not safe for concurrent use.
type Table[W any] struct {
	byKey *btreemap.BTreeMap[string, *Lock[W]]
	// byID maps an id to the first transaction with that id, which links to the others.
	byID         map[txn.ID]*Transaction[W]
	transactions int
	// changing holds the locks with a change in flight, volatile the volatile ones.
	changing, volatile map[*Lock[W]]struct{}
	// spans holds the span locks; spanBytes is the size of their bounds in bytes (span.go).
	spans     []*Lock[W]
	spanBytes int
	// awaited holds the transactions that have waiters.
	awaited map[*Transaction[W]]struct{}
	waiters int
}

// degree is the degree of the tree.
const degree = 16

// make allocates the tree and the maps.
func (t *Table[W]) make() {
	if t.byKey != nil {
		return
	}
	t.byKey = btreemap.New[string, *Lock[W]](degree, cmp.Compare[string])
	t.byID = make(map[txn.ID]*Transaction[W])
	t.changing, t.volatile = make(map[*Lock[W]]struct{}), make(map[*Lock[W]]struct{})
	t.awaited = make(map[*Transaction[W]]struct{})
}

// Len returns the number of locked keys.
func (t *Table[W]) Len() int {
	if t.byKey == nil {
		return 0
	}
	return t.byKey.Len()
}

// Empty reports that no key and no span is locked.
func (t *Table[W]) Empty() bool { return t.byKey == nil }

// Get returns the lock of a user key; nil if the key is free.
func (t *Table[W]) Get(key string) *Lock[W] {
	if t.byKey == nil {
		return nil
	}
	_, l, _ := t.byKey.Get(key)
	return l
}

// Each calls visit for the locks of [start, end) in the order of their keys, until it returns
// false. An empty end means no bound. visit must not change the table.
func (t *Table[W]) Each(start, end string, visit func(*Lock[W]) bool) {
	if t.byKey == nil {
		return
	}
	stop := btreemap.Max[string]()
	if end != "" {
		stop = btreemap.LT(end)
	}
	t.byKey.AscendFunc(btreemap.GE(start), stop, func(_ string, l *Lock[W]) bool { return visit(l) })
}

// Transaction returns the transaction with an id and an anchor; nil if it has no lock here.
func (t *Table[W]) Transaction(of *txn.Info) *Transaction[W] {
	x := t.byID[of.ID]
	for x != nil && !x.SameAnchor(of) {
		x = x.namesake
	}
	return x
}

// EachNamed calls visit for all transactions with an id: one, or several with different anchors.
// visit must not change the table.
func (t *Table[W]) EachNamed(id txn.ID, visit func(*Transaction[W])) {
	for x := t.byID[id]; x != nil; x = x.namesake {
		visit(x)
	}
}

// HasTransaction reports whether x still has locks, in this table.
func (t *Table[W]) HasTransaction(x *Transaction[W]) bool { return t.Transaction(&x.Info) == x }

// Transactions returns the number of transactions.
func (t *Table[W]) Transactions() int { return t.transactions }

// EachTransaction calls visit for the transactions that have locks here, in no certain order, until
// it returns false. visit must not change the table.
func (t *Table[W]) EachTransaction(visit func(*Transaction[W]) bool) {
	for _, x := range t.byID {
		for ; x != nil; x = x.namesake {
			if !visit(x) {
				return
			}
		}
	}
}

// add adds a lock to a transaction's.
func (t *Table[W]) add(l *Lock[W], of txn.Info) *Lock[W] {
	x := t.enter(&of)
	l.Transaction, l.index = x, len(x.locks)
	x.locks = append(x.locks, l)
	if l.Span {
		x.spans++
	}
	return l
}

// remove removes a lock from its transaction's.
func (t *Table[W]) remove(l *Lock[W]) {
	of := l.Transaction
	if l.Span {
		of.spans--
	}
	last := len(of.locks) - 1
	of.locks[l.index] = of.locks[last]
	of.locks[l.index].index = l.index
	of.locks[last] = nil
	of.locks = of.locks[:last]
	if last == 0 {
		t.leave(of)
	}
}

// enter returns the transaction with an id and an anchor, and adds it if need be.
func (t *Table[W]) enter(of *txn.Info) *Transaction[W] {
	x := t.Transaction(of)
	if x == nil {
		x = &Transaction[W]{Info: *of, namesake: t.byID[of.ID]}
		t.byID[of.ID] = x
		t.transactions++
	}
	return x
}

// leave removes a transaction that has no lock any more.
func (t *Table[W]) leave(x *Transaction[W]) {
	t.transactions--
	first := t.byID[x.ID]
	switch {
	case first != x:
		before := first
		for before.namesake != x {
			before = before.namesake
		}
		before.namesake = x.namesake
	case x.namesake != nil:
		t.byID[x.ID] = x.namesake
	default:
		delete(t.byID, x.ID)
	}
	x.namesake = nil
}
