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
	// maxSpans bounds the spans of a memory. Beyond it the two neighbours that have not changed for
	// the longest time are joined, or the smallest span is removed.
	maxSpans = 64
	// maxWalks bounds the running walks of a memory.
	maxWalks = 8
	// maxWritten is the number of versions after which a walk gives up.
	maxWritten = 4096
	// overhead estimates the memory of a span beside its keys, in bytes.
	overhead = 128
)

// Span is a vacant span of internal keys. A Span and its keys never change.
type Span struct {
	Start, End []byte
	// Since is the lowest timestamp at which reads see nothing in the span.
	Since hlc.Timestamp
	// Waits is the highest timestamp of the versions in the span that were written with commit wait;
	// zero if there are none.
	Waits hlc.Timestamp
	// Keys estimates the number of deleted keys in the span.
	Keys int
}

func (s *Span) size() int64 { return int64(len(s.Start) + len(s.End) + overhead) }

// Write is a version that is about to be committed.
type Write struct {
	// Key is an internal key. The memory copies the key if it keeps it.
	Key       []byte
	Timestamp hlc.Timestamp
	// Tombstone is set if the version is a tombstone, CommitWait if it is written with commit wait.
	Tombstone, CommitWait bool
}

// Budget bounds the bytes that several memories hold together, and counts their use by scans. A nil
// Budget has no limit.
type Budget struct {
	limit int64
	used  atomic.Int64
	// passed counts the keys without a value that scans passed over because a memory had their
	// span. walked counts the keys of the spans that scans walked over and added.
	passed, walked atomic.Uint64
}

// NewBudget returns a budget of so many bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Passed returns the number of keys without a value that scans have passed over thanks to the
// memories.
func (b *Budget) Passed() uint64 { return b.passed.Load() }

// Walked returns the number of keys without a value that scans have walked over and whose spans
// they added.
func (b *Budget) Walked() uint64 { return b.walked.Load() }

// Used returns the bytes in use.
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

// Memory holds the vacant spans of a replica. Any goroutine may use it, but only one at a time may
// be between Begin and End.
type Memory struct {
	budget *Budget
	after  int
	// active is set while there are spans or walks, so that Wrote has to be called. writing is set
	// while a batch is being committed. A walk sets active and then reads writing; a commit sets
	// writing and then reads active. So at least one of the two sees the other.
	active, writing atomic.Bool
	// spans are the known spans, in order, without overlap. The slice is never changed.
	spans atomic.Pointer[[]Span]
	mu    sync.Mutex
	walks []*Walk
	// ending, if set, is called by tests while a walk ends, before its spans are known.
	ending func()
}

// Init sets the budget, and the number of consecutive keys without a value after which a scan
// learns. Init must be called before all other methods.
func (m *Memory) Init(b *Budget, after int) { m.budget, m.after = b, after }

// After returns the number of consecutive keys without a value after which a scan learns; 0 means
// never.
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

// Passed counts a pass over a span with about `keys` keys.
func (m *Memory) Passed(keys int) {
	if m != nil && m.budget != nil {
		m.budget.passed.Add(uint64(keys))
	}
}

// Begin must be called before a batch is committed. It reports whether Wrote has to be called for
// the batch. End must be called when the commit has ended, whether it succeeded or not.
func (m *Memory) Begin() (tell bool) {
	m.writing.Store(true)
	return m.active.Load()
}

// End ends the commit that Begin announced.
func (m *Memory) End() { m.writing.Store(false) }

// Wrote takes account of versions that are about to be committed.
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

// after returns the spans that remain after a write. own allows it to change the slice in place.
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

// without returns the parts of a span on either side of a key. Their numbers of keys are unknown.
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

// Reset forgets all spans, and voids the running walks. It is called when the writes are not known.
func (m *Memory) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.walks {
		w.void = true
	}
	m.storeLocked(nil)
}

// storeLocked stores the known spans, as far as the bounds allow.
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

// shrink joins two neighbours: those that have not changed for the longest time, so that reads a
// little in the past can still use the others. Without neighbours the smallest span goes.
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

// add adds a span, and replaces the parts of known spans that it covers. The caller holds mu.
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
