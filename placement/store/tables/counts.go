package tables

import (
	"bytes"
	"slices"
	"sync"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	// maxCounted bounds the remembered counts, and maxCountedBytes the bytes of the bounds of each.
	maxCounted      = 64
	maxCountedBytes = 4 << 10
)

// countedRange is the number of keys of a range at a revision. The number never changes while the
// revision is readable.
type countedRange struct {
	key, end []byte
	revision uint64
	count    uint64
}

// RangeCounts caches the counts of ranges for clients that list in pages. Such a client reads
// ranges with the same end and revision, one after the other, and each answer has the count of its
// whole range. Without the count of the page before, each page would visit all the remaining keys.
type RangeCounts struct {
	Mu struct {
		sync.Mutex
		// Ranges are in the order of their last use, the latest first.
		Ranges []countedRange
	}
}

// find returns a counted range that lies within a range, with the same end: the one with the lowest
// start.
func (c *RangeCounts) find(key, end []byte, revision uint64) (found countedRange, ok bool) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	at := -1
	for i, r := range c.Mu.Ranges {
		if r.revision != revision || !bytes.Equal(r.end, end) || bytes.Compare(r.key, key) < 0 {
			continue
		}
		if at < 0 || bytes.Compare(r.key, c.Mu.Ranges[at].key) < 0 {
			at = i
		}
	}
	if at < 0 {
		return countedRange{}, false
	}
	found = c.Mu.Ranges[at]
	c.Mu.Ranges = slices.Insert(slices.Delete(c.Mu.Ranges, at, at+1), 0, found)
	return found, true
}

// note remembers a count. It replaces the count of the range with the same end and revision that
// begins at previous, the page before. The bytes are copied.
func (c *RangeCounts) note(r countedRange, previous []byte) {
	if len(r.key)+len(r.end) > maxCountedBytes {
		return
	}
	r.key, r.end = bytes.Clone(r.key), bytes.Clone(r.end)
	c.Mu.Lock()
	defer c.Mu.Unlock()
	c.Mu.Ranges = slices.DeleteFunc(c.Mu.Ranges, func(old countedRange) bool {
		return old.revision == r.revision && bytes.Equal(old.end, r.end) &&
			(bytes.Equal(old.key, r.key) || bytes.Equal(old.key, previous))
	})
	c.Mu.Ranges = slices.Insert(c.Mu.Ranges, 0, r)
	if len(c.Mu.Ranges) > maxCounted {
		clear(c.Mu.Ranges[maxCounted:])
		c.Mu.Ranges = c.Mu.Ranges[:maxCounted]
	}
}

// remembersCount reports whether the count of a range is looked up, and remembered, in counts.
func (r *Reader) remembersCount(q *storepb.Range) bool {
	return r.Counts != nil && int64(q.Revision) > 0
}

// knowsCounts reports whether a range is counted with blocks or counts.
func (r *Reader) knowsCounts(q *storepb.Range, revision uint64) bool {
	return q.Count && !q.CountOnly && q.Limit > 0 && (r.remembersCount(q) || r.hasBlocks(revision))
}

func (r *Reader) hasBlocks(revision uint64) bool {
	return r.Blocks != nil && r.Blocks.Covers(revision)
}

// countKeys counts the keys of a span, with blocks if they have the revision.
func (r *Reader) countKeys(span keys.Span, revision uint64) (uint64, error) {
	scan := func(span keys.Span, visit func(key []byte)) error {
		return r.Walk(span, revision, func() Part { return MereKey },
			func(*storepb.KeyValue) (bool, error) {
				key, _, err := DecodeVersionKey(r.Iterator.Key())
				if err == nil {
					visit(key)
				}
				return true, err
			})
	}
	if r.Blocks != nil {
		return r.Blocks.Count(span, revision, scan)
	}
	count := uint64(0)
	err := scan(span, func([]byte) { count++ })
	return count, err
}

// rangeCounted collects the pairs of a range up to its limit, and counts all its keys, with blocks,
// or with counts if the revision is too old for blocks.
func (r *Reader) rangeCounted(q *storepb.Range, revision uint64, s *selection) (uint64, error) {
	var known countedRange
	ok := false
	if r.remembersCount(q) && !r.hasBlocks(revision) {
		known, ok = r.Counts.find(q.Key, q.RangeEnd, revision)
	}
	// seen counts the visited keys up to last; before counts those among them that known does not
	// include.
	var seen, before uint64
	var last []byte
	err := r.Walk(command.Span(q.Key, q.RangeEnd), revision, s.need,
		func(kv *storepb.KeyValue) (bool, error) {
			if seen++; ok && bytes.Compare(kv.Key, known.key) < 0 {
				before++
			}
			if err := s.add(kv); err != nil {
				return false, err
			}
			if s.more && s.full() {
				last = kv.Key
			}
			return last == nil, nil
		})
	switch {
	case err != nil:
		return 0, err
	case last == nil:
		return seen, nil // the whole range
	}
	count := before
	if !ok || before == seen {
		rest := keys.Span{Start: append(bytes.Clone(last), 0),
			End: command.Span(q.Key, q.RangeEnd).End}
		if ok {
			rest.End = known.key
		}
		others, err := r.countKeys(rest, revision)
		if err != nil {
			return 0, err
		}
		count = seen + others
	}
	if ok {
		count += known.count
	}
	if r.remembersCount(q) && s.order() == nil && !s.filters() {
		// The client's next page begins after the end of this page.
		next := s.pairs[len(s.pairs)-1].Key
		r.Counts.note(countedRange{append(bytes.Clone(next), 0), q.RangeEnd, revision,
			count - uint64(len(s.pairs))}, q.Key)
	}
	return count, nil
}
