package tscache

import (
	"bytes"
	"hash/maphash"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Cache is a timestamp cache; see the package's documentation. New makes one. A Cache is not safe
// for concurrent use: its owner's lock guards it.
type Cache struct {
	// low is the low-water mark: every key counts as read at it.
	low hlc.Timestamp
	// max is at or above every timestamp in the cache, including low.
	max hlc.Timestamp
	// slots has a power of two elements, or is nil.
	slots []hlc.Timestamp
	// used counts the slots that are not zero.
	used  int
	seed  maphash.Seed
	spans []readSpan
	// slotLimit is a power of two.
	slotLimit int
	budget    *Budget
}

type readSpan struct {
	span keys.Span
	at   hlc.Timestamp
}

const (
	// DefaultSlots is the usual limit of a cache's slots: 512 KiB.
	DefaultSlots = 1 << 15

	firstSlots = 64
	spanLimit  = 32
)

// New returns an empty cache with at most the given number of slots, rounded up to a power of two.
// If the budget has no more room, a cache keeps its present slots and answers less precisely, since
// more keys share a slot. A nil budget has no bounds.
func New(slots int, budget *Budget) Cache {
	limit := firstSlots
	for limit < slots {
		limit *= 2
	}
	return Cache{slotLimit: limit, budget: budget}
}

// Reset forgets everything and takes a new low-water mark, which may be below the old one: a new
// leadership begins.
func (c *Cache) Reset(low hlc.Timestamp) {
	c.budget.give(len(c.slots))
	c.low, c.max, c.slots, c.used, c.spans = low, low, nil, 0, nil
}

// Raise raises the low-water mark.
func (c *Cache) Raise(low hlc.Timestamp) {
	c.low, c.max = hlc.Max(c.low, low), hlc.Max(c.max, low)
}

// Release returns the memory: the low-water mark rises above every read.
func (c *Cache) Release() { c.Reset(c.max) }

// Max returns a timestamp at or above the low-water mark and every read that was recorded.
func (c *Cache) Max() hlc.Timestamp { return c.max }

// Record remembers that a key was read.
func (c *Cache) Record(key []byte, at hlc.Timestamp) {
	if at.LessEq(c.low) {
		return
	}
	if c.max.Less(at) {
		c.max = at
	}
	if c.slots == nil {
		c.seed = maphash.MakeSeed()
		c.slots = make([]hlc.Timestamp, firstSlots)
		c.budget.force(firstSlots)
	}
	slot := &c.slots[maphash.Bytes(c.seed, key)&uint64(len(c.slots)-1)]
	if slot.IsZero() {
		c.used++
	}
	if slot.Less(at) {
		*slot = at
	}
	if c.used > len(c.slots)/2 && len(c.slots) < c.slotLimit && c.budget.take(len(c.slots)) {
		c.grow()
	}
}

// grow doubles the table. One more bit of the hash spreads a slot's keys over two slots. Which key
// belongs to which is not known, so both slots inherit the timestamp.
func (c *Cache) grow() {
	n := len(c.slots)
	slots := make([]hlc.Timestamp, 2*n)
	c.used = 0
	for i, at := range c.slots {
		// Slots at or below the low-water mark are dropped.
		if c.low.Less(at) {
			slots[i], slots[i+n] = at, at
			c.used += 2
		}
	}
	c.slots = slots
}

// RecordSpan remembers that a span was read. It copies the span.
func (c *Cache) RecordSpan(span keys.Span, at hlc.Timestamp) {
	if at.LessEq(c.low) {
		return
	}
	if c.max.Less(at) {
		c.max = at
	}
	kept, lowest := c.spans[:0], -1
	for _, s := range c.spans {
		// Reads that the low-water mark or the new span covers are dropped.
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
			c.Raise(at)
			return
		}
		c.Raise(c.spans[lowest].at)
		c.spans[lowest] = readSpan{span.Clone(), at}
		return
	}
	c.spans = append(c.spans, readSpan{span.Clone(), at})
}

// Above returns the lowest timestamp at or above candidate at which the key may be written.
func (c *Cache) Above(key []byte, candidate hlc.Timestamp) hlc.Timestamp {
	if c.max.Less(candidate) {
		return candidate
	}
	if read := c.read(key); !read.Less(candidate) {
		return read.Next()
	}
	return candidate
}

// read returns a timestamp at or above all timestamps at which the key was read.
func (c *Cache) read(key []byte) hlc.Timestamp {
	read := c.low
	if c.slots != nil {
		read = hlc.Max(read, c.slots[maphash.Bytes(c.seed, key)&uint64(len(c.slots)-1)])
	}
	for _, s := range c.spans {
		if read.Less(s.at) && bytes.Compare(key, s.span.Start) >= 0 &&
			(len(s.span.End) == 0 || bytes.Compare(key, s.span.End) < 0) {
			read = s.at
		}
	}
	return read
}
