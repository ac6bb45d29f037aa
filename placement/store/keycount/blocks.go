package keycount

import (
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Limits are the bounds of Blocks. All must be above 0.
type Limits struct {
	// BlockKeys is the approximate number of keys of a new block. It doubles whenever there are
	// more than Blocks blocks, or their bounds have more than BoundBytes bytes.
	BlockKeys, Blocks, BoundBytes int
	// BoundLength bounds the length of a block's bound, in bytes.
	BoundLength int
	// Vacant bounds the vacant spans that are remembered; VacantAfter is the number of consecutive
	// deleted keys and vacant spans that a walk passes before it remembers the span.
	Vacant, VacantAfter int
	// Changes bounds the newest changes that are kept, and ChangeBytes the bytes of their keys.
	Changes, ChangeBytes int
}

// DefaultLimits bound the memory to some 7 MB. A walk passes VacantAfter deleted keys in less than
// a tenth of a millisecond.
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
	// vacant is stored under mu, and loaded without.
	vacant atomic.Pointer[Vacant]
	mu     struct {
		sync.Mutex
		// blocks are in order. The numbers of keys between them are unknown.
		blocks []block
		// bytes is the sum of the lengths of the bounds; blockKeys is the approximate number of
		// keys of a new block.
		bytes, blockKeys int
		recent           recent
	}
}

// block is the number of keys in a span; an empty end means no upper end.
type block struct {
	start, end string
	keys       int
}

func (b *block) bytes() int { return len(b.start) + len(b.end) }

// New returns a Blocks without blocks, at revision 0. A nil limits means DefaultLimits.
func New(limits *Limits) *Blocks {
	if limits == nil {
		limits = DefaultLimits()
	}
	b := &Blocks{limits: limits}
	b.mu.blockKeys = limits.BlockKeys
	return b
}

// Reset drops all blocks, since the state was replaced; revision is the new state's.
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

// Changed records that a key is created, or deleted, at a revision, which is the newest. It must be
// called before any Count at that revision. The key is kept, and must not be changed.
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

// Advance sets the newest revision, after all of its changes.
func (b *Blocks) Advance(revision uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.recent.head = max(b.mu.recent.head, revision)
}

// Covers reports whether Count at a revision would use blocks. The caller must be able to read the
// revision.
func (b *Blocks) Covers(revision uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.recent.covers(revision)
}

// fromLocked returns the index of the first block that ends above a key.
func (b *Blocks) fromLocked(key string) int {
	return sort.Search(len(b.mu.blocks), func(i int) bool { return below(key, b.mu.blocks[i].end) })
}

// Scan visits the keys of a span in order, as of the revision that is counted. visit must not keep
// the keys. It returns the first error that it meets.
type Scan func(span keys.Span, visit func(key []byte)) error

// Count returns the number of keys in a span at a revision. It scans the parts without blocks, and
// returns the error of a scan.
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

// checkInvariantCount compares a count with a scan of the keys.
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

// step is the next step of a count: the number of keys of whole blocks, and the span after them to
// be scanned, unless the count is done.
type step struct {
	known    int
	done     bool
	from, to string
	// record is set if no block has the span. blockKeys is the number of keys for a new block.
	record    bool
	blockKeys int
}

// next adds up the adjacent blocks from a key on.
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

// scan counts a span by its keys, and makes blocks of the span.
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

// separator returns the shortest key above key and not above next, which is above key.
func separator(key, next []byte) string {
	n := 0
	for n < len(key) && key[n] == next[n] {
		n++
	}
	return string(next[:n+1])
}

// add adds a block with a number of keys at a revision. rest is set if the block is the last of a
// scanned span, and may be small.
func (b *Blocks) add(one block, revision uint64, rest bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.mu.recent.covers(revision) || max(len(one.start), len(one.end)) > b.limits.BoundLength {
		return
	}
	i := b.fromLocked(one.start)
	if i < len(b.mu.blocks) && below(b.mu.blocks[i].start, one.end) {
		return // another count was first
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
		return // avoid many small blocks
	default:
		b.mu.blocks = slices.Insert(b.mu.blocks, i, one)
	}
	if b.mu.bytes += one.bytes(); b.tooMuchLocked() {
		b.coarsenLocked()
	}
}

// joinsLocked reports whether a block and the next block have to be joined.
func (b *Blocks) joinsLocked(one, next block) bool {
	return one.keys+next.keys <= b.mu.blockKeys+b.mu.blockKeys/2
}

func (b *Blocks) tooMuchLocked() bool {
	return len(b.mu.blocks) > b.limits.Blocks || b.mu.bytes > b.limits.BoundBytes
}

// coarsenLocked joins blocks into larger ones. If they still exceed the limits, it drops all.
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
