package mvcc

import (
	"bytes"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc/vacant"
)

// Source is one of the spans that Merge reads.
type Source struct {
	Reader engine.Reader
	// Span is a span of internal keys.
	Span keys.Span
	// Prefix is the number of leading bytes that are cut off the internal keys. Keys are compared,
	// emitted, and named in the result without these bytes.
	Prefix int
	// Uncertain is as in ScanOptions, for this source.
	Uncertain Limits
	// Kept, if set, provides the iterator, and keeps it for the next read of the same reader.
	Kept *Kept
	// Vacant, if set, provides known spans without values, and learns new ones from the scan.
	Vacant *vacant.Memory
}

// Kept is an iterator that several reads use, one after the other. Opening one costs as much as
// reading a few rows. It sees its reader's state as of its first use, so it must not be used for
// reads that begin later. The zero Kept is ready for use. The caller closes it.
type Kept struct{ iter *pebble.Iterator }

// Close closes the iterator. The reads have already returned the iterator's errors.
func (k *Kept) Close() {
	if k.iter != nil {
		_ = k.iter.Close()
		k.iter = nil
	}
}

// Merge is Scan over several spans, as if they were one: keys come in their order without their
// source's prefix. No two sources may hold the same key without prefix. The limits are for all
// sources together. Span and Uncertain of the options are not used.
//
// Every source has an iterator open for as long as Merge runs. Keys are looked at in the order in
// which they come, so that where a limit ends the page, all sources have been read up to the same
// key, and no further.
func Merge(sources []Source, o ScanOptions,
	emit func(key []byte, v Version) error) (ScanResult, error) {
	if o.At.Wall < 0 || o.At.IsZero() {
		return ScanResult{}, nil
	}
	m := merge{o: o, emit: emit, expiredAt: o.ExpiredAt}
	if m.expiredAt.IsZero() {
		m.expiredAt = o.At
	}
	err := m.open(sources)
	if err == nil {
		err = m.run()
	}
	for _, c := range m.cursors {
		m.result.CommitWaitUntil = hlc.Max(m.result.CommitWaitUntil, c.vacancy.waits)
		c.endVacancy(err == nil && c.iter.Error() == nil)
		if closeErr := c.close(); err == nil && closeErr != nil {
			err = fmt.Errorf("scan: %w", closeErr)
		}
	}
	if err != nil {
		return ScanResult{}, err
	}
	return m.result, nil
}

// merge is the state of a running Merge.
type merge struct {
	o    ScanOptions
	emit func(key []byte, v Version) error
	// expiredAt is the time with which expiries are compared.
	expiredAt hlc.Timestamp
	// cursors are all opened cursors; heap are the cursors that stand on a key, the first key
	// first.
	cursors []*cursor
	heap    []*cursor
	result  ScanResult
	skipped int
}

func (m *merge) open(sources []Source) error {
	m.cursors = make([]*cursor, 0, 2*len(sources))
	m.heap = m.cursors[len(sources):len(sources)]
	for i := range sources {
		s := &sources[i]
		if s.Span.Empty() {
			continue
		}
		c, err := openCursor(s, hlc.Max(m.o.At, s.Uncertain.Versions), m.o.Reverse)
		if err != nil {
			return err
		}
		m.cursors = append(m.cursors, c)
		c.vacancy.memory, c.vacancy.after, c.vacancy.known = s.Vacant, s.Vacant.After(), s.Vacant.Spans()
		c.vacancy.at = hlc.Min(m.o.At, m.expiredAt)
		if err := m.look(c); err != nil {
			return err
		}
		if c.on {
			m.heap = append(m.heap, c)
		}
	}
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.sink(i)
	}
	return nil
}

// look takes the key on which a cursor stands, if any, or the next key outside vacant spans.
func (m *merge) look(c *cursor) error {
	if !c.on {
		return nil
	}
	if err := c.look(); err != nil || len(c.vacancy.known) == 0 {
		return err
	}
	return c.passOver()
}

// run goes from key to key.
func (m *merge) run() error {
	var went []byte // the key at which a cursor has gone back to the first key of its run
	for len(m.heap) > 0 {
		c := m.heap[0]
		if m.full() && !c.returns() {
			m.more(c.user)
			return nil
		}
		found, err := c.resolve()
		if err != nil {
			return err
		}
		again := false
		if found {
			shown := m.result.Rows
			done, err := m.show(c)
			if done || err != nil {
				c.endRun(c.key()) // the key has a value, and in reverse the cursor may have left it
				return err
			}
			if m.result.Rows == shown && c.newest {
				went = append(went[:0], c.key()...)
				if again, err = c.dead(&c.version); err != nil {
					return fmt.Errorf("scan: %w", err)
				}
			} else {
				c.endRun(c.key())
			}
		} else {
			m.skipped++
			c.endRun(c.key())
		}
		if again {
			m.skipped -= c.vacancy.after // they are met once more
			c.vacancy.until = append(c.vacancy.until[:0], went...)
		} else {
			c.advance()
		}
		if c.on {
			if err := m.look(c); err != nil {
				return err
			}
		}
		if !c.on {
			// If an error of its iterator is the reason, closing the iterator reports it.
			last := len(m.heap) - 1
			m.heap[0] = m.heap[last]
			m.heap = m.heap[:last]
		}
		m.sink(0)
	}
	return nil
}

// full reports whether a limit is reached before the next key.
func (m *merge) full() bool {
	return (m.o.MaxRows > 0 && m.result.Rows >= m.o.MaxRows) ||
		(m.o.MaxSkipped > 0 && m.skipped >= m.o.MaxSkipped)
}

// more ends the page before a key, and sets More and Resume.
func (m *merge) more(key []byte) {
	m.result.More = true
	if m.o.Reverse {
		m.result.Resume = keys.Next(key)
	} else {
		m.result.Resume = bytes.Clone(key)
	}
}

// show emits the newest visible version of the key on which a cursor stands. done is set if the
// page is full.
func (m *merge) show(c *cursor) (done bool, err error) {
	v := c.version
	if m.o.At.Less(v.Timestamp) {
		return true, &UncertaintyError{Key: bytes.Clone(c.key()), Timestamp: v.Timestamp}
	}
	if v.CommitWait {
		m.result.CommitWaitUntil = hlc.Max(m.result.CommitWaitUntil, v.Timestamp)
	}
	if v.Kind == KindTombstone {
		m.skipped++
		return false, nil
	}
	if v.Expires != 0 {
		if v.ExpiredAt(m.expiredAt) {
			m.skipped++
			return false, nil
		}
		if expiry, uncertain := v.expiresWithin(m.o.At, c.expiries); uncertain {
			return true, &UncertaintyError{Key: bytes.Clone(c.key()), Timestamp: expiry, Expiry: true}
		}
	}
	if m.o.KeysOnly {
		v.Value = nil
	}
	size := int64(len(c.user) + len(v.Value))
	if m.o.MaxBytes > 0 && m.result.Rows > 0 && m.result.Bytes+size > m.o.MaxBytes {
		m.more(c.user)
		return true, nil
	}
	if m.emit != nil {
		if err := m.emit(c.user, v); err != nil {
			return true, err
		}
	}
	m.result.Rows++
	m.result.Bytes += size
	if v.Expires != 0 && (m.result.Expires == 0 || v.Expires < m.result.Expires) {
		m.result.Expires = v.Expires
	}
	return false, nil
}

// before orders cursors by their keys.
func (m *merge) before(i, j int) bool {
	c := bytes.Compare(m.heap[i].user, m.heap[j].user)
	if m.o.Reverse {
		return c > 0
	}
	return c < 0
}

// sink restores the order of the heap when the key at i has become a later one.
func (m *merge) sink(i int) {
	for {
		child := 2*i + 1
		if child >= len(m.heap) {
			return
		}
		if child+1 < len(m.heap) && m.before(child+1, child) {
			child++
		}
		if !m.before(child, i) {
			return
		}
		m.heap[i], m.heap[child] = m.heap[child], m.heap[i]
		i = child
	}
}
