package mvcc

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	// maxSteps is the number of versions of one key that a scan steps over before it seeks. A seek
	// costs about as much as ten steps.
	maxSteps = 4
	// keepBuffer is the largest buffer that is kept for the next scan, in bytes.
	keepBuffer = 64 << 10
)

// cursor walks over the keys of one span, in either direction. For each key, in this order: look,
// resolve, advance.
type cursor struct {
	iter    *pebble.Iterator
	reader  engine.Reader
	span    keys.Span
	options pebble.IterOptions
	// kept is set if the iterator belongs to the caller.
	kept    bool
	reverse bool
	// top is the highest timestamp that the scan considers: its own, or the end of its uncertainty
	// interval.
	top hlc.Timestamp
	// expiries is the timestamp up to which expiries are uncertain.
	expiries hlc.Timestamp
	// cut is the number of leading bytes of the internal key that user leaves out.
	cut int

	// on is set if the iterator stands on a version of a key that look has not taken yet. It is
	// false at the end, and after an error of the iterator.
	on bool
	// past is set if resolve has moved to the next key already.
	past bool
	found
	vacancy vacancy
	buffers
}

// found is the key that the cursor has taken with look.
type found struct {
	// prefix is the key's unversioned data key; user is the part of it by which keys are compared.
	prefix, user []byte
	// version is the key's newest visible version, set by resolve and valid until advance.
	version Version
	// newest is set by resolve if version is the newest of all versions of the key.
	newest bool
}

// buffers is memory that a cursor keeps for its next use.
type buffers struct{ lower, upper, seek, value []byte }

var cursors = sync.Pool{New: func() any { return new(cursor) }}

// openCursor returns a cursor on the first key of a source. The caller closes it.
func openCursor(s *Source, top hlc.Timestamp, reverse bool) (*cursor, error) {
	c := cursors.Get().(*cursor)
	c.top, c.reverse, c.cut, c.past, c.kept = top, reverse, s.Prefix, false, s.Kept != nil
	c.expiries, c.reader, c.span = s.Uncertain.Expiries, s.Reader, s.Span
	c.bounds(s.Span)
	if c.kept && s.Kept.iter != nil {
		c.iter = s.Kept.iter
		c.iter.SetBounds(c.options.LowerBound, c.options.UpperBound)
	} else {
		var err error
		if c.iter, err = s.Reader.NewIter(&c.options); err != nil {
			c.free()
			return nil, fmt.Errorf("scan %s: %w", s.Span, err)
		}
		if c.kept {
			s.Kept.iter = c.iter
		}
	}
	if reverse {
		c.on = c.iter.Last()
	} else {
		c.on = c.iter.First()
	}
	return c, nil
}

func (c *cursor) bounds(span keys.Span) {
	c.lower = keys.AppendDataKey(c.lower[:0], span.Start)
	c.options.LowerBound = c.lower
	if len(span.End) > 0 {
		c.upper = keys.AppendDataKey(c.upper[:0], span.End)
		c.options.UpperBound = c.upper
	} else {
		c.options.UpperBound = dataEnd
	}
}

var errVanished = errors.New("a version is not found by its timestamp")

var dataEnd = keys.DataSpan(keys.Span{}).End

// close ends the cursor and releases its memory. It returns the iterator's first error.
func (c *cursor) close() error {
	err := c.iter.Error()
	if !c.kept {
		if closeErr := c.iter.Close(); err == nil {
			err = closeErr
		}
	}
	c.free()
	return err
}

// free releases the buffers for reuse, without memory that others own.
func (c *cursor) free() {
	c.iter, c.reader, c.span, c.version, c.user = nil, nil, keys.Span{}, Version{}, nil
	c.vacancy = vacancy{first: c.vacancy.first}
	if cap(c.value) > keepBuffer {
		c.value = nil
	}
	cursors.Put(c)
}

// look takes the key on which the iterator stands as the current key.
func (c *cursor) look() error {
	_, v, err := decode(c.iter)
	if err != nil {
		return err
	}
	c.version = v
	c.prefix = append(c.prefix[:0], dataPrefix(c.iter.Key())...)
	c.user = c.key()[c.cut:]
	return nil
}

// key is the internal key of the current key.
func (c *cursor) key() []byte { return c.prefix[1 : len(c.prefix)-1] }

// resolve finds the newest visible version of the key; false if there is none.
func (c *cursor) resolve() (found bool, err error) {
	if c.reverse {
		return c.resolveReverse()
	}
	return c.resolveForward()
}

// resolveForward steps down from the newest version.
func (c *cursor) resolveForward() (found bool, err error) {
	c.newest = !c.top.Less(c.version.Timestamp)
	for steps := 0; c.top.Less(c.version.Timestamp); steps++ {
		if steps < maxSteps {
			c.on = c.iter.Next()
		} else {
			c.seek = keys.AppendTimestamp(append(c.seek[:0], c.prefix...), c.top)
			c.on = c.iter.SeekGE(c.seek)
		}
		if !c.on || !c.sameKey() {
			c.past = true
			return false, nil
		}
		if _, c.version, err = decode(c.iter); err != nil {
			return false, err
		}
	}
	return true, nil
}

// resolveReverse steps up from the oldest version. A version is known to be the newest visible one
// when the next version is too new, or belongs to another key.
func (c *cursor) resolveReverse() (found bool, err error) {
	var candidate Version
	v := c.version
	c.newest = false
	for steps := 0; ; steps++ {
		if v.Timestamp.LessEq(c.top) {
			candidate, found = v, true
			c.value = append(c.value[:0], v.Value...)
			candidate.Value = c.value
		}
		if steps == maxSteps || c.top.Less(v.Timestamp) {
			if !c.top.Less(v.Timestamp) {
				candidate, err = c.seekVisible()
			}
			break
		}
		if c.on = c.iter.Prev(); !c.on || !c.sameKey() {
			c.newest = true
			break
		}
		if _, v, err = decode(c.iter); err != nil {
			return false, err
		}
	}
	c.version = candidate
	return found && err == nil, err
}

// seekVisible finds the newest visible version, which is known to exist.
func (c *cursor) seekVisible() (Version, error) {
	c.seek = keys.AppendTimestamp(append(c.seek[:0], c.prefix...), c.top)
	if !c.iter.SeekGE(c.seek) || !c.sameKey() {
		if err := c.iter.Error(); err != nil {
			return Version{}, readError(c.key(), err)
		}
		// The version existed before the seek, and an iterator's view does not change.
		return Version{}, corrupt(c.prefix, errVanished)
	}
	_, v, err := decode(c.iter)
	return v, err
}

// advance moves on to the next key.
func (c *cursor) advance() {
	switch {
	case c.past:
		c.past = false
	case !c.reverse:
		c.on = c.nextKey()
	case c.iter.Valid() && c.sameKey():
		c.on = c.iter.SeekLT(c.prefix)
	default:
		c.on = c.iter.Valid()
	}
}

// nextKey moves past the versions of the current key.
func (c *cursor) nextKey() bool {
	// Most keys with a value have one version: the next key is the next version. A tombstone is
	// usually followed by the versions that it hides.
	if c.version.Kind == KindTombstone {
		return c.iter.NextPrefix()
	}
	if !c.iter.Next() {
		return false
	}
	if !c.sameKey() {
		return true
	}
	return c.iter.NextPrefix()
}

// sameKey reports whether the iterator stands on a version of the current key.
func (c *cursor) sameKey() bool {
	return bytes.Equal(dataPrefix(c.iter.Key()), c.prefix)
}
