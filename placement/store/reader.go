package store

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// source is what can be read: the state database, or a batch on top of it.
type source interface {
	NewIter(*pebble.IterOptions) (*pebble.Iterator, error)
}

// reader reads one consistent state of the store: an iterator sees neither later batches nor a
// snapshot that is installed meanwhile, and the meta record is read through the same iterator. It
// is for one goroutine, and holds on to memtables and files: it is closed soon.
type reader struct {
	*layout
	it   *pebble.Iterator
	meta *storepb.MetaRecord
}

func newReader(l *layout, s source) (*reader, error) {
	it, err := s.NewIter(&pebble.IterOptions{LowerBound: l.span.Start, UpperBound: l.span.End})
	if err != nil {
		return nil, fmt.Errorf("read the core's store: %w", err)
	}
	r := &reader{layout: l, it: it, meta: &storepb.MetaRecord{Revision: initialRevision}}
	value, ok, err := r.get(l.meta)
	if err == nil && ok {
		r.meta = &storepb.MetaRecord{}
		if err = r.meta.UnmarshalVT(value); err == nil &&
			(r.meta.Revision < initialRevision || r.meta.Compacted > r.meta.Revision) {
			err = fmt.Errorf("revision %d, compacted %d", r.meta.Revision, r.meta.Compacted)
		}
		if err != nil {
			err = fmt.Errorf("meta record of the core's store is malformed: %w", err)
		}
	}
	if err != nil {
		return nil, errors.Join(err, it.Close())
	}
	return r, nil
}

func (r *reader) close() error { return r.it.Close() }

// seek moves to the first engine key at or after start, and says whether it comes before end.
func (r *reader) seek(start, end []byte) bool {
	return r.it.SeekGE(start) && bytes.Compare(r.it.Key(), end) < 0
}

// next moves to the next engine key, and says whether it comes before end.
func (r *reader) next(end []byte) bool {
	return r.it.Next() && bytes.Compare(r.it.Key(), end) < 0
}

// get reads an engine key. The value is valid until the iterator moves.
func (r *reader) get(key []byte) (value []byte, ok bool, err error) {
	if !r.it.SeekGE(key) || !bytes.Equal(r.it.Key(), key) {
		return nil, false, r.it.Error()
	}
	value, err = r.it.ValueAndErr()
	return value, err == nil, err
}

// applied is the index and the term of the last entry of the state that is read; 0 if there was
// none.
func (r *reader) applied() (index, term uint64, err error) {
	value, ok, err := r.get(r.layout.applied)
	if err != nil || !ok {
		return 0, 0, err
	}
	return decodeApplied(value)
}

// at returns the newest version of a key at or below a revision; nil if there is none or it is a
// deletion.
func (r *reader) at(key []byte, revision uint64) (*storepb.KeyValue, error) {
	kv, err := r.version(key, revision)
	if err != nil || kv == nil || kv.Version == 0 {
		return nil, err
	}
	return kv, nil
}

// version is like at, but tells a deletion from nothing: a key-value with version 0.
func (r *reader) version(key []byte, revision uint64) (*storepb.KeyValue, error) {
	if !r.it.SeekGE(r.layout.version(key, revision)) {
		return nil, r.it.Error()
	}
	found, at, err := decodeVersionKey(r.it.Key())
	if err != nil || !bytes.Equal(found, key) {
		// Not a version at all: the next table begins here.
		return nil, nil
	}
	return r.decode(found, at)
}

// decode reads the version on which the iterator stands. The key is copied.
func (r *reader) decode(key []byte, revision uint64) (*storepb.KeyValue, error) {
	value, err := r.it.ValueAndErr()
	if err != nil {
		return nil, err
	}
	var record storepb.VersionRecord
	if err := record.UnmarshalVT(value); err != nil {
		return nil, fmt.Errorf("version %d of key %s is malformed: %w", revision, keys.Pretty(key), err)
	}
	kv := &storepb.KeyValue{Key: bytes.Clone(key), ModRevision: revision}
	if !record.Tombstone {
		kv.CreateRevision, kv.Version, kv.Value, kv.Lease = record.CreateRevision, record.Version,
			record.Value, record.Lease
	}
	return kv, nil
}

// scan visits the keys of a span in order, as they were at a revision, until visit says false.
func (r *reader) scan(
	span keys.Span, revision uint64, visit func(*storepb.KeyValue) (bool, error),
) error {
	if span.Empty() {
		return nil
	}
	for ok := r.it.SeekGE(r.table(tableVersion, span.Start)); ok; {
		key, at, err := decodeVersionKey(r.it.Key())
		if err != nil || (len(span.End) > 0 && bytes.Compare(key, span.End) >= 0) {
			break // the next table, or the end of the span
		}
		if at > revision {
			// Usually few versions are newer; SeekGE to a near key is cheap.
			ok = r.it.SeekGE(r.layout.version(key, revision))
			continue
		}
		kv, err := r.decode(key, at)
		if err != nil {
			return err
		}
		if kv.Version > 0 {
			if more, err := visit(kv); err != nil || !more {
				return err
			}
		}
		ok = r.it.NextPrefix()
	}
	return r.it.Error()
}

// checkRevision resolves the revision of a read. 0 is the newest.
func (r *reader) checkRevision(revision uint64) (uint64, error) {
	switch {
	case revision == 0:
		return r.meta.Revision, nil
	case revision > r.meta.Revision:
		return 0, fmt.Errorf("%w: revision %d was asked for, the newest is %d", ErrFutureRevision,
			revision, r.meta.Revision)
	case revision < r.meta.Compacted:
		return 0, &CompactedError{Revision: r.meta.Compacted}
	}
	return revision, nil
}

// rangeAt answers a range request at a revision that was checked.
func (r *reader) rangeAt(q *storepb.Range, revision uint64) (*storepb.RangeResult, error) {
	result := &storepb.RangeResult{}
	if len(q.RangeEnd) == 0 {
		kv, err := r.at(q.Key, revision)
		if err != nil || kv == nil {
			return result, err
		}
		result.Count = 1
		if !q.CountOnly {
			result.Kvs = append(result.Kvs, strip(kv, q))
		}
		return result, nil
	}
	limit := q.Limit
	if limit == 0 {
		limit = math.MaxUint64
	}
	err := r.scan(rangeSpan(q.Key, q.RangeEnd), revision, func(kv *storepb.KeyValue) (bool, error) {
		if !q.CountOnly && uint64(len(result.Kvs)) == limit {
			result.More = true
			if !q.Count {
				return false, nil
			}
		} else if !q.CountOnly {
			result.Kvs = append(result.Kvs, strip(kv, q))
		}
		result.Count++
		return true, nil
	})
	return result, err
}

func strip(kv *storepb.KeyValue, q *storepb.Range) *storepb.KeyValue {
	if q.KeysOnly {
		kv.Value = nil
	}
	return kv
}
