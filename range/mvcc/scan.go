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
	// maxSteps is how many versions of one key a scan steps over before it seeks. A seek costs about as much as ten steps.
	maxSteps = 4
	// keepBuffer is the largest buffer that is kept for the next scan, in bytes.
	keepBuffer = 64 << 10
)

// ScanOptions say what to scan.
type ScanOptions struct {
	// Span is of internal keys.
	Span keys.Span
	// At is the timestamp as of which keys are read.
	At hlc.Timestamp
	// UncertainUntil, if above At, makes the scan fail with an *UncertaintyError at a key with a version in between.
	UncertainUntil hlc.Timestamp
	// Reverse scans from the end of the span to its start.
	Reverse bool
	// KeysOnly leaves the values out, and out of MaxBytes.
	KeysOnly bool
	// MaxRows ends the scan after so many rows. 0: no limit.
	MaxRows int
	// MaxBytes ends the scan before a row with which keys and values would be more than that, in bytes; the first row comes
	// all the same. 0: no limit.
	MaxBytes int64
	// MaxSkipped ends the scan after so many keys that have nothing to show (deleted, or written later), so that each call is
	// bounded work. 0: no limit.
	MaxSkipped int
}

// ScanResult says how a scan ended.
type ScanResult struct {
	// Rows and Bytes are what was emitted.
	Rows  int
	Bytes int64
	// More: a limit ended the scan. The rest is the scan of Rest's span.
	More bool
	// Resume is where the rest begins: the Start of its span, or for a reverse scan its End. It is a copy.
	Resume []byte
}

// Rest is the part of a span that a scan with this result left out. It is meaningful only if More.
func (s ScanResult) Rest(span keys.Span, reverse bool) keys.Span {
	if reverse {
		span.End = s.Resume
	} else {
		span.Start = s.Resume
	}
	return span
}

// scanner is the working memory of a scan.
type scanner struct {
	o    ScanOptions
	emit func(key []byte, v Version) error
	// top is the highest timestamp that matters: At, or UncertainUntil.
	top     hlc.Timestamp
	iter    *pebble.Iterator
	options pebble.IterOptions
	result  ScanResult
	skipped int

	lower, upper []byte
	// prefix is the unversioned data key of the key being looked at.
	prefix []byte
	seek   []byte
	value  []byte
}

var scanners = sync.Pool{New: func() any { return new(scanner) }}

// Scan reads the keys in a span as of a timestamp, in order, and hands those with a value to emit, whose arguments are valid
// until it returns. An error of emit ends the scan and is returned. emit may be nil.
func Scan(r engine.Reader, o ScanOptions, emit func(key []byte, v Version) error) (ScanResult, error) {
	if o.Span.Empty() || o.At.Wall < 0 || o.At.IsZero() {
		return ScanResult{}, nil
	}
	s := scanners.Get().(*scanner)
	s.o, s.emit, s.top = o, emit, hlc.Max(o.At, o.UncertainUntil)
	s.result, s.skipped = ScanResult{}, 0
	s.bounds(o.Span)
	var err error
	if s.iter, err = r.NewIter(&s.options); err != nil {
		return ScanResult{}, fmt.Errorf("scan %s: %w", o.Span, err)
	}
	if o.Reverse {
		err = s.reverse()
	} else {
		err = s.forward()
	}
	if err == nil {
		if err = s.iter.Error(); err != nil {
			err = fmt.Errorf("scan %s: %w", o.Span, err)
		}
	}
	if closeErr := s.iter.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("scan %s: %w", o.Span, closeErr)
	}
	result := s.result
	s.free()
	if err != nil {
		return ScanResult{}, err
	}
	return result, nil
}

// Count is Scan without values: the rows of the result are the number of keys.
func Count(r engine.Reader, o ScanOptions) (ScanResult, error) {
	o.KeysOnly = true
	return Scan(r, o, nil)
}

func (s *scanner) bounds(span keys.Span) {
	s.lower = keys.AppendDataKey(s.lower[:0], span.Start)
	s.options.LowerBound = s.lower
	if len(span.End) > 0 {
		s.upper = keys.AppendDataKey(s.upper[:0], span.End)
		s.options.UpperBound = s.upper
	} else {
		s.options.UpperBound = dataEnd
	}
}

var errVanished = errors.New("a version is not found by its timestamp")

var dataEnd = keys.DataSpan(keys.Span{}).End

// free gives the working memory back, without what belongs to others.
func (s *scanner) free() {
	s.o, s.emit, s.iter, s.result = ScanOptions{}, nil, nil, ScanResult{}
	if cap(s.value) > keepBuffer {
		s.value = nil
	}
	scanners.Put(s)
}

// forward goes from key to key; versions come newest first.
func (s *scanner) forward() error {
	for ok := s.iter.First(); ok; {
		key, v, err := decode(s.iter)
		if err != nil {
			return err
		}
		s.prefix = append(s.prefix[:0], keys.DataPrefix(s.iter.Key())...)
		if s.full() {
			s.more(bytes.Clone(key))
			return nil
		}
		visible := true
		for steps := 0; s.top.Less(v.Timestamp); steps++ {
			if steps < maxSteps {
				ok = s.iter.Next()
			} else {
				s.seek = keys.AppendTimestamp(append(s.seek[:0], s.prefix...), s.top)
				ok = s.iter.SeekGE(s.seek)
			}
			if visible = ok && s.sameKey(); !visible {
				break
			}
			if key, v, err = decode(s.iter); err != nil {
				return err
			}
		}
		if !visible {
			s.skipped++
			continue // ok already says whether there is a next key
		}
		if done, err := s.show(key, v); done || err != nil {
			return err
		}
		ok = s.nextKey()
	}
	return nil
}

// nextKey leaves the versions of the current key behind.
func (s *scanner) nextKey() bool {
	// Most keys have one version: the next key is the next version.
	if !s.iter.Next() {
		return false
	}
	if !s.sameKey() {
		return true
	}
	return s.iter.NextPrefix()
}

// reverse goes from key to key backwards; versions come oldest first, so the one to show is known only when the next
// is too new, or another key's.
func (s *scanner) reverse() error {
	for ok := s.iter.Last(); ok; {
		key, v, err := decode(s.iter)
		if err != nil {
			return err
		}
		s.prefix = append(s.prefix[:0], keys.DataPrefix(s.iter.Key())...)
		if s.full() {
			s.more(keys.Next(key))
			return nil
		}
		key = s.prefix[1 : len(s.prefix)-1]
		var candidate Version
		visible := false
		for steps := 0; ; steps++ {
			if v.Timestamp.LessEq(s.top) {
				candidate, visible = v, true
				s.value = append(s.value[:0], v.Value...)
				candidate.Value = s.value
			}
			if steps == maxSteps || s.top.Less(v.Timestamp) {
				if candidate, visible, err = s.seekVisible(candidate, visible, s.top.Less(v.Timestamp)); err != nil {
					return err
				}
				break
			}
			if ok = s.iter.Prev(); !ok || !s.sameKey() {
				break
			}
			if _, v, err = decode(s.iter); err != nil {
				return err
			}
		}
		if !visible {
			s.skipped++
		} else if done, err := s.show(key, candidate); done || err != nil {
			return err
		}
		if ok && s.iter.Valid() && s.sameKey() {
			ok = s.iter.SeekLT(s.prefix)
		} else {
			ok = s.iter.Valid()
		}
	}
	return nil
}

// seekVisible ends the walk over the versions of a key. If the walk has gone past the newest that matters, it is the candidate;
// otherwise it is found by a seek.
func (s *scanner) seekVisible(candidate Version, visible, past bool) (Version, bool, error) {
	if past {
		return candidate, visible, nil
	}
	s.seek = keys.AppendTimestamp(append(s.seek[:0], s.prefix...), s.top)
	if !s.iter.SeekGE(s.seek) || !s.sameKey() {
		if err := s.iter.Error(); err != nil {
			return Version{}, false, readError(s.prefix, err)
		}
		// It was there a moment ago, and what an iterator sees does not change.
		return Version{}, false, corrupt(s.prefix, errVanished)
	}
	_, v, err := decode(s.iter)
	return v, err == nil, err
}

// sameKey reports whether the iterator stands on a version of the key being looked at.
func (s *scanner) sameKey() bool {
	return bytes.Equal(keys.DataPrefix(s.iter.Key()), s.prefix)
}

// full reports whether a limit is reached before the next key.
func (s *scanner) full() bool {
	return (s.o.MaxRows > 0 && s.result.Rows >= s.o.MaxRows) || (s.o.MaxSkipped > 0 && s.skipped >= s.o.MaxSkipped)
}

func (s *scanner) more(resume []byte) { s.result.More, s.result.Resume = true, resume }

// show emits the newest version that matters of a key. done: the scan is over.
func (s *scanner) show(key []byte, v Version) (done bool, err error) {
	if s.o.At.Less(v.Timestamp) {
		return true, &UncertaintyError{Key: bytes.Clone(key), Timestamp: v.Timestamp}
	}
	if v.Kind == KindTombstone {
		s.skipped++
		return false, nil
	}
	if s.o.KeysOnly {
		v.Value = nil
	}
	size := int64(len(key) + len(v.Value))
	if s.o.MaxBytes > 0 && s.result.Rows > 0 && s.result.Bytes+size > s.o.MaxBytes {
		if s.o.Reverse {
			s.more(keys.Next(key))
		} else {
			s.more(bytes.Clone(key))
		}
		return true, nil
	}
	if s.emit != nil {
		if err := s.emit(key, v); err != nil {
			return true, err
		}
	}
	s.result.Rows++
	s.result.Bytes += size
	return false, nil
}
