package locks

import (
	"cmp"

	"github.com/RaduBerinde/btreemap"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// State is what is known of a lock without reading it.
type State struct {
	// Kind is PUT, DELETE or LOCK.
	Kind kvpb.Mutation_Kind
	// Prepared is the lowest timestamp at which the key may be committed.
	Prepared hlc.Timestamp
	// Request is the Prepare that laid it.
	Request mvcc.RequestID
	// Laid is when, in nanoseconds since the epoch by the leader's physical clock.
	Laid int64
	// Size is the length of the value in bytes.
	Size int
	// Volatile says that the lock is in this table and nowhere else.
	Volatile bool
}

// Writes says that the key changes if the transaction commits: a lock of any other kind is in no read's way.
func (s *State) Writes() bool { return s.Kind != kvpb.Mutation_LOCK }

// Lock is the lock of a key. Its fields are changed by the table only.
type Lock[W any] struct {
	// Key is a user key, or where the span begins.
	Key string
	// Span says that it is a span lock, of [Key, End); an empty End reaches to the end of the
	// partition.
	Span        bool
	End         string
	Transaction *Transaction[W]
	// Applied is the state in the engine, or the volatile one; nil if there is none yet.
	Applied *State
	// Flight is the state on its way, nil if none is; it is carried by the proposal that has the number Sequence.
	Flight *State
	// Sequence is of the proposal that changes or removes the lock; 0: none is on its way.
	Sequence uint64

	// index is its place among the transaction's locks.
	index int
	// waiting counts who waits for it.
	waiting int
}

// InFlight says that a change of the lock is on its way, be it the removal.
func (l *Lock[W]) InFlight() bool { return l.Sequence != 0 }

// Removing says that the removal is on its way.
func (l *Lock[W]) Removing() bool { return l.Sequence != 0 && l.Flight == nil }

// Newest is the state that the lock will have if what is on its way is applied, or the present one if it is about to go.
func (l *Lock[W]) Newest() *State {
	if l.Flight != nil {
		return l.Flight
	}
	return l.Applied
}

// Blocks says that a commit of the transaction may put a version of the key at or below a timestamp.
func (l *Lock[W]) Blocks(at hlc.Timestamp) bool {
	blocks := func(s *State) bool { return s != nil && s.Writes() && s.Prepared.LessEq(at) }
	return blocks(l.Applied) || blocks(l.Flight)
}

// Table is a partition's locks. W is what waits. The zero Table is empty and ready. It is not safe for concurrent use.
type Table[W any] struct {
	byKey *btreemap.BTreeMap[string, *Lock[W]]
	byID  map[txn.ID]*Transaction[W]
	// flights are the locks of which a change is in flight, volatile those that are nowhere else.
	flights, volatile map[*Lock[W]]struct{}
	// spans are the span locks, and spanBytes how many bytes their bounds have (span.go).
	spans     []*Lock[W]
	spanBytes int
	// blocking are the transactions that somebody waits for.
	blocking map[*Transaction[W]]struct{}
	waiters  int
}

// degree is of the tree's nodes.
const degree = 16

// Len is the number of locked keys.
func (t *Table[W]) Len() int {
	if t.byKey == nil {
		return 0
	}
	return t.byKey.Len()
}

// Get is the lock of a user key; nil if it is free.
func (t *Table[W]) Get(key string) *Lock[W] {
	if t.byKey == nil {
		return nil
	}
	_, l, _ := t.byKey.Get(key)
	return l
}

// Ascend calls visit for the locks of [start, end) in the order of their keys, until it returns false. An empty end is none. visit must
// not change the table.
func (t *Table[W]) Ascend(start, end string, visit func(*Lock[W]) bool) {
	if t.byKey == nil {
		return
	}
	stop := btreemap.Max[string]()
	if end != "" {
		stop = btreemap.LT(end)
	}
	t.byKey.AscendFunc(btreemap.GE(start), stop, func(_ string, l *Lock[W]) bool { return visit(l) })
}

// Lay puts a state in flight: a new lock, or another state of one that the transaction has. The key must be free or the transaction's,
// and nothing of it in flight; sequence is not 0.
func (t *Table[W]) Lay(key string, of txn.Info, s State, sequence uint64) {
	l := t.lock(key, of)
	l.Transaction.Laid = max(l.Transaction.Laid, s.Laid)
	l.Flight, l.Sequence = &s, sequence
	t.flights[l] = struct{}{}
}

// MarkRemoved says that the removal of a lock is in flight. Nothing else of it may be.
func (t *Table[W]) MarkRemoved(l *Lock[W], sequence uint64) {
	l.Sequence = sequence
	t.flights[l] = struct{}{}
}

// Apply puts a state that is in the engine into the table, in place of what was there, and returns who waited for that.
func (t *Table[W]) Apply(key string, of txn.Info, s State) (released []W) {
	if l := t.Get(key); l != nil && l.Transaction.ID != of.ID {
		released = t.Remove(key)
	}
	l := t.lock(key, of)
	l.Transaction.Laid = max(l.Transaction.Laid, s.Laid)
	l.Applied = &s
	delete(t.volatile, l)
	t.settle(l)
	return append(released, t.release(l, UntilApplied)...)
}

// Hold lays a volatile lock. The key must be free, or under a volatile lock of the transaction with nothing of it in flight.
func (t *Table[W]) Hold(key string, of txn.Info, s State) {
	l := t.lock(key, of)
	l.Transaction.Laid = max(l.Transaction.Laid, s.Laid)
	s.Volatile = true
	l.Applied = &s
	t.volatile[l] = struct{}{}
}

// Remove takes out the lock of a key, whose removal is in the engine, and returns all who waited for it.
func (t *Table[W]) Remove(key string) (released []W) {
	l := t.Get(key)
	if l == nil {
		return nil
	}
	return t.RemoveLock(l)
}

// RemoveLock is Remove of a lock that is in the table, be it of a key or of a span.
func (t *Table[W]) RemoveLock(l *Lock[W]) (released []W) {
	released = t.release(l, UntilGone)
	t.drop(l)
	return released
}

// Has says whether a lock is in the table still.
func (t *Table[W]) Has(l *Lock[W]) bool {
	if !l.Span {
		return t.Get(l.Key) == l
	}
	return t.SpanAt(l.Key) == l
}

// DropInFlight forgets all that is in flight, and volatile: the locks are what they are in the engine. Who waits must have been taken out
// (Drain).
func (t *Table[W]) DropInFlight() {
	for l := range t.volatile {
		delete(t.volatile, l)
		l.Applied = nil
		if !l.InFlight() {
			t.drop(l)
		}
	}
	for l := range t.flights {
		if l.Applied == nil {
			t.drop(l)
		} else {
			t.settle(l)
		}
	}
}

// InFlight is the number of locks of which a change is in flight.
func (t *Table[W]) InFlight() int { return len(t.flights) }

// lock is the lock of a key, which is the transaction's own or new.
func (t *Table[W]) lock(key string, of txn.Info) *Lock[W] {
	t.make()
	if l := t.Get(key); l != nil {
		return l
	}
	l := t.add(&Lock[W]{Key: key}, of)
	t.byKey.ReplaceOrInsert(key, l)
	return l
}

// make makes sure that there is room for locks.
func (t *Table[W]) make() {
	if t.byKey != nil {
		return
	}
	t.byKey = btreemap.New[string, *Lock[W]](degree, cmp.Compare[string])
	t.byID = make(map[txn.ID]*Transaction[W])
	t.flights, t.volatile = make(map[*Lock[W]]struct{}), make(map[*Lock[W]]struct{})
	t.blocking = make(map[*Transaction[W]]struct{})
}

// add makes a lock one of a transaction's.
func (t *Table[W]) add(l *Lock[W], of txn.Info) *Lock[W] {
	x := t.byID[of.ID]
	if x == nil {
		x = &Transaction[W]{Info: of}
		t.byID[of.ID] = x
	}
	l.Transaction, l.index = x, len(x.locks)
	x.locks = append(x.locks, l)
	if l.Span {
		x.spans++
	}
	return l
}

// settle says that nothing of a lock is in flight.
func (t *Table[W]) settle(l *Lock[W]) {
	l.Flight, l.Sequence = nil, 0
	delete(t.flights, l)
}

// drop takes a lock out.
func (t *Table[W]) drop(l *Lock[W]) {
	t.settle(l)
	delete(t.volatile, l)
	of := l.Transaction
	if l.Span {
		t.dropSpan(l)
		of.spans--
	} else {
		t.byKey.Delete(l.Key)
	}
	last := len(of.locks) - 1
	of.locks[l.index] = of.locks[last]
	of.locks[l.index].index = l.index
	of.locks[last] = nil
	of.locks = of.locks[:last]
	if last == 0 {
		delete(t.byID, of.ID)
	}
	if t.byKey.Len() == 0 && len(t.spans) == 0 {
		// Trees and maps do not shrink.
		t.spans = nil
		t.byKey, t.byID, t.flights, t.volatile, t.blocking = nil, nil, nil, nil, nil
	}
}
