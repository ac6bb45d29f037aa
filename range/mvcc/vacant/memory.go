package vacant

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	// maxSpans is how many spans a memory holds. Beyond that the two neighbours that have not changed
	// for longest become one, or the smallest span goes.
	maxSpans = 64
	// maxWalks is how many walks of a memory are under way.
	maxWalks = 8
	// maxWritten is how many versions a walk hears of before it gives up.
	maxWritten = 4096
	// overhead is about what a span takes besides its keys, in bytes.
	overhead = 128
)

// Span is a vacant span of internal keys. It is never changed, nor are its keys.
type Span struct {
	Start, End []byte
	// Since is the lowest timestamp at which reads see nothing in the span.
	Since hlc.Timestamp
	// Waits is the highest timestamp of the versions in the span that were written with commit wait;
	// zero if there are none.
	Waits hlc.Timestamp
	// Keys is about how many deleted keys lie in the span.
	Keys int
}

func (s *Span) size() int64 { return int64(len(s.Start) + len(s.End) + overhead) }

// Write is a version that is about to be committed.
type Write struct {
	// Key is an internal key. The memory copies the key if it keeps it.
	Key       []byte
	Timestamp hlc.Timestamp
	// Tombstone: the version is one. CommitWait: it is written with commit wait.
	Tombstone, CommitWait bool
}

// Budget bounds what several memories hold together, in bytes, and counts what scans do with them.
// A nil Budget has no limit.
type Budget struct {
	limit int64
	used  atomic.Int64
	// passed and walked count the keys without a value that scans have passed over because a memory
	// had their span, and those of the spans that scans have walked over and added.
	passed, walked atomic.Uint64
}

// NewBudget returns a budget of so many bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Passed and Walked are how many keys without a value scans have passed over, thanks to the
// memories, and how many they have walked over, to add their spans.
func (b *Budget) Passed() uint64 { return b.passed.Load() }

// Walked is explained at Passed.
func (b *Budget) Walked() uint64 { return b.walked.Load() }

// Used is how much is taken.
func (b *Budget) Used() int64 { return b.used.Load() }

func (b *Budget) take(n int64) bool {
	if b == nil {
		return true
	}
	if used := b.used.Add(n); n > 0 && used > b.limit {
		b.used.Add(-n)
		return false
	}
	return true
}

// Memory is the vacant spans of a replica. It is for concurrent use; Begin to End is one goroutine
// at a time.
type Memory struct {
	budget *Budget
	after  int
	// active: there are spans or walks, so what is written has to be told. writing: a batch is being
	// committed. One who begins a walk sets the first and then reads the second; one who commits sets
	// the second and then reads the first. So at least one of both sees the other.
	active, writing atomic.Bool
	// spans are those known, in order, without overlap. The slice is never changed.
	spans atomic.Pointer[[]Span]
	mu    sync.Mutex
	walks []*Walk
	// ending, if set, is called by tests while a walk ends, before its spans are known.
	ending func()
}

// Init sets the budget, and after how many keys in a row without a value a scan is to learn. Init
// must be called before anything else.
func (m *Memory) Init(b *Budget, after int) { m.budget, m.after = b, after }

// After is how many keys in a row without a value a scan finds before it learns; 0: it never does.
func (m *Memory) After() int {
	if m == nil {
		return 0
	}
	return m.after
}

// Spans are the vacant spans, in the order of their keys. The slice must not be changed.
func (m *Memory) Spans() []Span {
	if m == nil {
		return nil
	}
	if all := m.spans.Load(); all != nil {
		return *all
	}
	return nil
}

// Passed says that a scan has passed over a span with about so many keys.
func (m *Memory) Passed(keys int) {
	if m != nil && m.budget != nil {
		m.budget.passed.Add(uint64(keys))
	}
}

// Begin is to be called before a batch is committed. It says whether the versions in the batch have
// to be told. End is to be called when the batch is committed, or was not.
func (m *Memory) Begin() (tell bool) {
	m.writing.Store(true)
	return m.active.Load()
}

// End ends what Begin has begun.
func (m *Memory) End() { m.writing.Store(false) }

// Wrote takes note of versions that are about to be committed.
func (m *Memory) Wrote(writes []Write) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.walks {
		w.hear(writes)
	}
	all := m.Spans()
	if len(all) == 0 {
		return
	}
	changed := false
	for i := range writes {
		var now bool
		if all, now = after(all, &writes[i], changed); now {
			changed = true
		}
	}
	if changed {
		m.storeLocked(all)
	}
}

// after is what is left of spans after a write. The slice may be changed in place if it is the
// caller's own.
func after(all []Span, w *Write, own bool) (_ []Span, changed bool) {
	i, found := slices.BinarySearchFunc(all, w.Key, func(s Span, key []byte) int {
		switch {
		case bytes.Compare(s.End, key) <= 0:
			return -1
		case bytes.Compare(key, s.Start) < 0:
			return 1
		}
		return 0
	})
	if !found {
		return all, false
	}
	if !own {
		all = slices.Clone(all)
	}
	s := all[i]
	if w.Tombstone {
		s.Since = hlc.Max(s.Since, w.Timestamp)
		if w.CommitWait {
			s.Waits = hlc.Max(s.Waits, w.Timestamp)
		}
		all[i] = s
		return all, true
	}
	return slices.Replace(all, i, i+1, s.without(w.Key)...), true
}

// without is what is left of a span beside a key. The number of keys on either side is not known.
func (s *Span) without(key []byte) (rest []Span) {
	left, right := *s, *s
	left.End, right.Start = bytes.Clone(key), keys.Next(key)
	left.Keys, right.Keys = s.Keys/2, s.Keys/2
	for _, part := range [...]Span{left, right} {
		if bytes.Compare(part.Start, part.End) < 0 {
			rest = append(rest, part)
		}
	}
	return rest
}

// Reset forgets everything, and has walks learn nothing: what was written is not known.
func (m *Memory) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.walks {
		w.void = true
	}
	m.storeLocked(nil)
}

// storeLocked makes spans the ones that are known, as far as bounds allow.
func (m *Memory) storeLocked(all []Span) {
	for len(all) > maxSpans {
		all = m.shrink(all)
	}
	size := func(all []Span) (n int64) {
		for i := range all {
			n += all[i].size()
		}
		return n
	}
	before := size(m.Spans())
	for !m.budget.take(size(all) - before) {
		all = m.shrink(all)
	}
	if len(all) == 0 {
		m.spans.Store(nil)
	} else {
		m.spans.Store(&all)
	}
	m.active.Store(len(all)+len(m.walks) > 0)
}

// shrink makes one of two neighbours: those that have not changed for longest, so that reads a
// little in the past go on to use the others. Without neighbours the smallest span goes.
func (m *Memory) shrink(all []Span) []Span {
	all = slices.Clone(all)
	best, least := -1, 0
	for i := range all {
		if all[i].Keys < all[least].Keys {
			least = i
		}
		if i > 0 && bytes.Equal(all[i-1].End, all[i].Start) && (best < 0 ||
			hlc.Max(all[i-1].Since, all[i].Since).Less(hlc.Max(all[best-1].Since, all[best].Since))) {
			best = i
		}
	}
	if best < 0 {
		return slices.Delete(all, least, least+1)
	}
	a, b := &all[best-1], &all[best]
	a.End, a.Keys = b.End, a.Keys+b.Keys
	a.Since, a.Waits = hlc.Max(a.Since, b.Since), hlc.Max(a.Waits, b.Waits)
	return slices.Delete(all, best, best+1)
}

// add takes a span in, over what is known of a part of it. The caller holds mu.
func add(all []Span, s Span) []Span {
	var next []Span
	for i := range all {
		known := all[i]
		if bytes.Compare(known.End, s.Start) <= 0 || bytes.Compare(s.End, known.Start) <= 0 {
			next = append(next, known)
			continue
		}
		left, right := known, known
		left.End, right.Start = s.Start, s.End
		for _, part := range [...]Span{left, right} {
			if bytes.Compare(part.Start, part.End) < 0 {
				next = append(next, part)
			}
		}
	}
	i, _ := slices.BinarySearchFunc(next, s.Start,
		func(s Span, key []byte) int { return bytes.Compare(s.Start, key) })
	return slices.Insert(next, i, s)
}
