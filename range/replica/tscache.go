package replica

import (
	"bytes"
	"hash/maphash"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// timestampCache remembers at which timestamps keys were read, so that no write goes below a read that was served (DESIGN
// invariant 4). It may answer too high, never too low.
//
// Point reads fall into a table of slots by the hash of their key; a slot keeps the highest timestamp of all keys that fall
// into it. A key that shares its slot with a later read one is written a little higher than needed, which costs nothing,
// and in return no key is stored, nothing is evicted and the table never overflows. It starts with 64 slots at the first
// read and doubles until it has slotLimit. (Two rotating generations of a map from key to timestamp were the alternative:
// ten times the memory and time, and still a low-water mark when they overflow.)
//
// Span reads are kept in a list of at most spanLimit; the lowest of more goes into the low-water mark.
//
// Most lookups end at max: writes get their timestamps from the clock, and the clock is above what it was read at.
//
// It is not safe for concurrent use.
type timestampCache struct {
	// low is the low-water mark: every key counts as read at it.
	low hlc.Timestamp
	// max is at or above everything in here, low too.
	max hlc.Timestamp
	// slots has a power of two elements, or is nil.
	slots []hlc.Timestamp
	// used is how many slots are not zero.
	used  int
	seed  maphash.Seed
	spans []readSpan
	// slotLimit is a power of two.
	slotLimit int
}

type readSpan struct {
	span keys.Span
	at   hlc.Timestamp
}

const (
	firstSlots       = 64
	defaultSlotLimit = 1 << 15
	spanLimit        = 32
)

// reset forgets everything and takes a new low-water mark, which may be below the old one: a new leadership begins.
func (c *timestampCache) reset(low hlc.Timestamp) {
	c.low, c.max, c.slots, c.used, c.spans = low, low, nil, 0, nil
}

// raise raises the low-water mark.
func (c *timestampCache) raise(low hlc.Timestamp) {
	c.low, c.max = hlc.Max(c.low, low), hlc.Max(c.max, low)
}

// release gives the memory back: everything goes into the low-water mark.
func (c *timestampCache) release() { c.reset(c.max) }

// record remembers that a key was read.
func (c *timestampCache) record(key []byte, at hlc.Timestamp) {
	if at.LessEq(c.low) {
		return
	}
	if c.max.Less(at) {
		c.max = at
	}
	if c.slots == nil {
		c.seed = maphash.MakeSeed()
		c.slots = make([]hlc.Timestamp, firstSlots)
	}
	slot := &c.slots[maphash.Bytes(c.seed, key)&uint64(len(c.slots)-1)]
	if slot.IsZero() {
		c.used++
	}
	if slot.Less(at) {
		*slot = at
	}
	if c.used > len(c.slots)/2 && len(c.slots) < c.slotLimit {
		c.grow()
	}
}

// grow doubles the table. A slot's keys are spread over two by one more bit of their hash; which went where is not known,
// so both inherit.
func (c *timestampCache) grow() {
	n := len(c.slots)
	slots := make([]hlc.Timestamp, 2*n)
	c.used = 0
	for i, at := range c.slots {
		// What the low-water mark has caught up with need not be taken along.
		if c.low.Less(at) {
			slots[i], slots[i+n] = at, at
			c.used += 2
		}
	}
	c.slots = slots
}

// recordSpan remembers that a span was read. It copies the span.
func (c *timestampCache) recordSpan(span keys.Span, at hlc.Timestamp) {
	if at.LessEq(c.low) {
		return
	}
	if c.max.Less(at) {
		c.max = at
	}
	kept, lowest := c.spans[:0], -1
	for _, s := range c.spans {
		// Dropped: what the low-water mark or the new span covers.
		if s.at.LessEq(c.low) || (s.at.LessEq(at) && span.ContainsSpan(s.span)) {
			continue
		}
		if at.LessEq(s.at) && s.span.ContainsSpan(span) {
			return
		}
		kept = append(kept, s)
		if lowest < 0 || s.at.Less(kept[lowest].at) {
			lowest = len(kept) - 1
		}
	}
	clear(c.spans[len(kept):])
	c.spans = kept
	if len(c.spans) == spanLimit {
		if at.Less(c.spans[lowest].at) {
			c.raise(at)
			return
		}
		c.raise(c.spans[lowest].at)
		c.spans[lowest] = readSpan{span.Clone(), at}
		return
	}
	c.spans = append(c.spans, readSpan{span.Clone(), at})
}

// above returns the lowest timestamp at or above candidate at which the key may be written.
func (c *timestampCache) above(key []byte, candidate hlc.Timestamp) hlc.Timestamp {
	if c.max.Less(candidate) {
		return candidate
	}
	if read := c.read(key); !read.Less(candidate) {
		return read.Next()
	}
	return candidate
}

// aboveAll is above for all keys at once.
func (c *timestampCache) aboveAll(candidate hlc.Timestamp) hlc.Timestamp {
	if c.max.Less(candidate) {
		return candidate
	}
	return c.max.Next()
}

// read is a timestamp at or above every one at which the key was read.
func (c *timestampCache) read(key []byte) hlc.Timestamp {
	read := c.low
	if c.slots != nil {
		read = hlc.Max(read, c.slots[maphash.Bytes(c.seed, key)&uint64(len(c.slots)-1)])
	}
	for _, s := range c.spans {
		if read.Less(s.at) && bytes.Compare(key, s.span.Start) >= 0 && (len(s.span.End) == 0 || bytes.Compare(key, s.span.End) < 0) {
			read = s.at
		}
	}
	return read
}
