package store

import (
	"bytes"
	"errors"
	"math"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/newest"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// newestAt is at for a revision at or above all that are visible: it does not read what Apply
// remembers. The key-value is shared, and must not be changed. It may lack its value unless need is
// wholePair.
func (r *reader) newestAt(key []byte, revision uint64, need part) (*storepb.KeyValue, error) {
	if r.newest == nil {
		return r.atParts(key, revision, need)
	}
	whole := need == wholePair
	kv, known := r.newest.Get(key, whole)
	if known {
		return kv, nil
	}
	kv, err := r.atParts(key, revision, need)
	if err == nil {
		r.newest.Read(key, kv, whole)
	}
	return kv, err
}

// beginFilling has the keys that exist noted, if that is due. It is called before anything is
// written, so that the scan has all that is not told to the cache from here on.
func (s *Store) beginFilling() {
	f := s.newest.Begin()
	if f == nil {
		return
	}
	select {
	case s.filling <- f:
	default: // the one before, which is of no use any more, is still under way
		f.Done(false)
	}
}

// fillNewest fills the filters of the newest versions. It is one goroutine, from New to Close.
func (s *Store) fillNewest() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case f := <-s.filling:
			err := s.noteKeys(f)
			if err != nil && !errors.Is(err, ErrClosed) && err != errNotWanted {
				s.config.Logger.Warn("reading the keys of "+s.config.Name+" failed; writes read what was "+
					"there before them", "error", err)
			}
			f.Done(err == nil)
		}
	}
}

var errNotWanted = errors.New("the keys are not wanted any more")

const (
	// notedKeys is how many keys are read at a time, with an iterator that is closed then.
	notedKeys = 4096
	// notedBytes is after how many bytes of values a piece ends, too.
	notedBytes = 4 << 20
	// noteEvery is for how long other work has the processor between.
	noteEvery = 5 * time.Millisecond
)

// noteKeys goes through all keys.
func (s *Store) noteKeys(f *newest.Filling) error {
	from := s.layout.table(tableVersion)
	for from != nil {
		err := s.read(func(r *reader) (err error) {
			from, err = r.noteKeys(f, from)
			return err
		})
		switch {
		case err != nil:
			return err
		case !f.Added():
			return errNotWanted
		case from != nil:
			s.rest(noteEvery)
		}
		if s.ctx.Err() != nil {
			return ErrClosed
		}
	}
	return nil
}

// noteKeys reads a piece of the keys, and returns where the next one begins; nil: there is none.
//
// INVARIANT: the next piece begins before all versions that its first key may come to have. The
// version that is met here may be gone by then, and newer ones come before it.
func (r *reader) noteKeys(f *newest.Filling, from []byte) (next []byte, err error) {
	end := r.end(tableVersion)
	n, size := 0, 0
	for ok := r.seek(from, end); ok; n++ {
		key, revision, err := decodeVersionKey(r.it.Key())
		if err != nil {
			return nil, err
		}
		if n == notedKeys || size > notedBytes {
			return r.layout.version(key, math.MaxUint64), nil
		}
		value := r.it.LazyValue()
		size += value.Len()
		kv, err := r.decodeParts(key, revision, mereKey)
		if err != nil {
			return nil, err
		}
		if kv != nil {
			f.Key(key)
		}
		ok = r.it.NextPrefix() && bytes.Compare(r.it.Key(), end) < 0
	}
	return nil, r.it.Error()
}
