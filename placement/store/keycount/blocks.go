package keycount

import (
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Limits are the sizes by which Blocks works. All must be above 0.
type Limits struct {
	// BlockKeys is about how many keys a block has at first. It doubles whenever there are more
	// blocks than Blocks, or more bytes of their bounds than BoundBytes.
	BlockKeys, Blocks, BoundBytes int
	// BoundLength bounds the length of a block's bound.
	BoundLength int
	// Vacant bounds the vacant spans that are remembered; VacantAfter is the number of consecutive
	// deleted keys and vacant spans that a walk passes before it remembers the span.
	Vacant, VacantAfter int
	// Changes and ChangeBytes are how many of the newest changes are kept, and how many bytes their
	// keys may have.
	Changes, ChangeBytes int
}

// DefaultLimits have at most some 7 MB held. To pass as many deleted keys as VacantAfter takes less
// than a tenth of a millisecond.
func DefaultLimits() *Limits {
	return &Limits{BlockKeys: 512, Blocks: 16 << 10, BoundBytes: 4 << 20, BoundLength: 1 << 10,
		Vacant: 256, VacantAfter: 64, Changes: 8 << 10, ChangeBytes: 1 << 20}
}

// A block with more than growth times BlockKeys keys is counted again when it is cut.
const growth = 4

// Blocks counts keys. Its methods may be called from any goroutine, but for Changed, Advance and
// Reset, which one goroutine calls at a time.
type Blocks struct {
	limits *Limits
	// vacant is stored by one who holds mu.
	vacant atomic.Pointer[Vacant]
	mu     struct {
		sync.Mutex
		// blocks are in order. Of what lies between them it is not known how many keys it has.
		blocks []block
		// bytes are those of the bounds, and blockKeys about how many keys a new block has.
		bytes, blockKeys int
		recent           recent
	}
}

// block is the number of keys in a span; an empty end is none.
type block struct {
	start, end string
	keys       int
}

func (b *block) bytes() int { return len(b.start) + len(b.end) }

// New returns one that knows nothing yet, at revision 0. A nil limits means DefaultLimits.
func New(limits *Limits) *Blocks {
	if limits == nil {
		limits = DefaultLimits()
	}
	b := &Blocks{limits: limits}
	b.mu.blockKeys = limits.BlockKeys
	return b
}

// Reset forgets everything: the keys are now those of another state, of that revision.
func (b *Blocks) Reset(revision uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clearLocked()
	b.vacant.Store(nil)
	b.mu.recent.reset(revision)
}

func (b *Blocks) clearLocked() {
	b.mu.blocks, b.mu.bytes, b.mu.blockKeys = nil, 0, b.limits.BlockKeys
}

// Changed notes that a key is created, or deleted, at a revision, which is the newest. It is called
// before any Count of that revision. The key is kept, and must not be changed.
func (b *Blocks) Changed(revision uint64, key []byte, created bool) {
	by := -1
	if created {
		by = 1
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.recent.head = max(b.mu.recent.head, revision)
	b.mu.recent.add(change{revision, key, by}, b.limits)
	if created {
		b.createdLocked(string(key))
	}
	i := b.fromLocked(string(key))
	if i < len(b.mu.blocks) && b.mu.blocks[i].start <= string(key) {
		b.mu.blocks[i].keys += by
	}
}

// Advance notes that a revision is the newest, after all of its changes.
func (b *Blocks) Advance(revision uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.recent.head = max(b.mu.recent.head, revision)
}

// Covers reports whether a count at that revision, which the caller can read, would come from
// blocks.
func (b *Blocks) Covers(revision uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.recent.covers(revision)
}

// fromLocked is the first block that ends above a key.
func (b *Blocks) fromLocked(key string) int {
	return sort.Search(len(b.mu.blocks), func(i int) bool { return below(key, b.mu.blocks[i].end) })
}

// Scan visits the keys of a span as they were at the revision that is counted, in order. The keys
// are its own. It returns the first error that it meets.
type Scan func(span keys.Span, visit func(key []byte)) error

// Count returns how many keys a span has at a revision. It scans what it does not know, and returns
// the error of that scan.
func (b *Blocks) Count(span keys.Span, revision uint64, scan Scan) (uint64, error) {
	if span.Empty() {
		return 0, nil
	}
	n, err := b.count(span, revision, scan)
	if invariants.Enabled && err == nil && n <= 16*invariants.Small && counted.Due(8) {
		err = checkInvariantCount(span, revision, n, scan)
	}
	return n, err
}

// counted counts the calls of Count, for checkInvariantCount.
var counted invariants.Every

// checkInvariantCount checks a count against the keys.
func checkInvariantCount(span keys.Span, revision, count uint64, scan Scan) error {
	found := uint64(0)
	err := scan(span, func([]byte) { found++ })
	invariants.Check(err != nil || found == count,
		"the store: %s has %d keys at revision %d, and %d are counted", span, found, revision, count)
	return err
}

func (b *Blocks) count(span keys.Span, revision uint64, scan Scan) (uint64, error) {
	count := 0
	at, end := string(span.Start), string(span.End)
	for {
		s := b.next(at, end, revision)
		count += s.known
		if s.done {
			return uint64(count), nil
		}
		scanned, err := b.scan(s, revision, scan)
		if err != nil {
			return 0, err
		}
		if count += scanned; s.to == end {
			return uint64(count), nil
		}
		at = s.to
	}
}

// step is the next step of a count: known keys, and then a span to be scanned, unless it is done.
type step struct {
	known    int
	done     bool
	from, to string
	// record is set if no block has the span. blockKeys is the number of keys for a new block.
	record    bool
	blockKeys int
}

// next sums up the blocks that lie one behind the other from a key on.
func (b *Blocks) next(at, end string, revision uint64) step {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.mu.recent.covers(revision) {
		return step{from: at, to: end}
	}
	s := step{from: at, blockKeys: b.mu.blockKeys}
	i := b.fromLocked(at)
	first := i
	for ; !s.done && i < len(b.mu.blocks); i++ {
		one := &b.mu.blocks[i]
		if one.start != s.from || !within(one.end, end) {
			break
		}
		s.known += one.keys
		s.from, s.done = one.end, one.end == end
	}
	if i > first {
		s.known -= b.mu.recent.since(revision, at, s.from)
	}
	if s.done {
		return s
	}
	if i < len(b.mu.blocks) && b.mu.blocks[i].start <= s.from {
		one := b.mu.blocks[i]
		if one.keys <= growth*b.mu.blockKeys {
			s.to = lower(one.end, end)
			return s
		}
		b.mu.bytes -= one.bytes()
		b.mu.blocks = slices.Delete(b.mu.blocks, i, i+1)
	}
	s.record, s.to = true, end
	if i < len(b.mu.blocks) {
		s.to = lower(b.mu.blocks[i].start, end)
	}
	return s
}

// scan counts a span by its keys, and makes blocks of it.
func (b *Blocks) scan(s step, revision uint64, scan Scan) (count int, err error) {
	one := block{start: s.from}
	var previous []byte
	span := keys.Span{Start: []byte(s.from), End: []byte(s.to)}
	err = scan(span, func(key []byte) {
		if s.record && one.keys >= s.blockKeys {
			if bound := separator(previous, key); len(bound) <= b.limits.BoundLength {
				one.end = bound
				b.add(one, revision, false)
				one = block{start: bound}
			}
		}
		count++
		if one.keys++; s.record && one.keys >= s.blockKeys {
			previous = append(previous[:0], key...)
		}
	})
	if err == nil && s.record {
		one.end = s.to
		b.add(one, revision, true)
	}
	return count, err
}

// separator is the shortest key above one and not above another, which comes after it.
func separator(key, next []byte) string {
	n := 0
	for n < len(key) && key[n] == next[n] {
		n++
	}
	return string(next[:n+1])
}

// add adds a block with a number of keys at a revision. rest is set if it is the rest of a span,
// and may be small.
func (b *Blocks) add(one block, revision uint64, rest bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.mu.recent.covers(revision) || max(len(one.start), len(one.end)) > b.limits.BoundLength {
		return
	}
	i := b.fromLocked(one.start)
	if i < len(b.mu.blocks) && below(b.mu.blocks[i].start, one.end) {
		return // another count has come before
	}
	one.keys += b.mu.recent.since(revision, one.start, one.end)
	left := i > 0 && b.mu.blocks[i-1].end == one.start
	right := i < len(b.mu.blocks) && b.mu.blocks[i].start == one.end
	switch {
	case left && b.joinsLocked(b.mu.blocks[i-1], one):
		i--
		b.mu.bytes -= b.mu.blocks[i].bytes()
		one.start, one.keys = b.mu.blocks[i].start, one.keys+b.mu.blocks[i].keys
		b.mu.blocks[i] = one
	case right && b.joinsLocked(one, b.mu.blocks[i]):
		b.mu.bytes -= b.mu.blocks[i].bytes()
		one.end, one.keys = b.mu.blocks[i].end, one.keys+b.mu.blocks[i].keys
		b.mu.blocks[i] = one
	case rest && one.keys < b.mu.blockKeys/2 && !(left && right):
		return // it would be one of many small ones
	default:
		b.mu.blocks = slices.Insert(b.mu.blocks, i, one)
	}
	if b.mu.bytes += one.bytes(); b.tooMuchLocked() {
		b.coarsenLocked()
	}
}

// joinsLocked reports whether a block and the next one have to be joined.
func (b *Blocks) joinsLocked(one, next block) bool {
	return one.keys+next.keys <= b.mu.blockKeys+b.mu.blockKeys/2
}

func (b *Blocks) tooMuchLocked() bool {
	return len(b.mu.blocks) > b.limits.Blocks || b.mu.bytes > b.limits.BoundBytes
}

// coarsenLocked joins blocks to larger ones. If that does not help, all are forgotten.
func (b *Blocks) coarsenLocked() {
	b.mu.blockKeys *= 2
	b.mu.bytes = 0
	joined := b.mu.blocks[:0]
	for _, one := range b.mu.blocks {
		if n := len(joined); n > 0 && joined[n-1].end == one.start && b.joinsLocked(joined[n-1], one) {
			b.mu.bytes -= joined[n-1].bytes()
			joined[n-1].end, joined[n-1].keys = one.end, joined[n-1].keys+one.keys
			b.mu.bytes += joined[n-1].bytes()
			continue
		}
		joined = append(joined, one)
		b.mu.bytes += one.bytes()
	}
	clear(b.mu.blocks[len(joined):])
	if b.mu.blocks = joined; b.tooMuchLocked() {
		b.clearLocked()
	}
}
