package store

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tidemarkdb/tidemark/placement/store/keycount"
	"github.com/tidemarkdb/tidemark/placement/store/newest"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/watch"
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
	// interrupted, if set, says now and then why a long reading is to end.
	interrupted func() error
	// counts, if set, remembers how many keys ranges have.
	counts *rangeCounts
	// blocks, if set, counts keys at the newest revisions without going through them.
	blocks *keycount.Blocks
	// vacant, if set, remembers spans without keys, which walks pass over.
	vacant *keycount.Blocks
	// newest, if set, remembers the newest versions: the reader is that of Apply.
	newest *newest.Cache
	// passed is how many keys walks have come to.
	passed uint64
}

func newReader(l *layout, s source) (*reader, error) {
	r, err := newReaderWith(l, s, &storepb.MetaRecord{Revision: initialRevision})
	if err != nil {
		return nil, err
	}
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
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// newReaderWith is newReader for a caller that knows the meta record.
func newReaderWith(l *layout, s source, meta *storepb.MetaRecord) (*reader, error) {
	it, err := s.NewIter(&pebble.IterOptions{LowerBound: l.span.Start, UpperBound: l.span.End})
	if err != nil {
		return nil, fmt.Errorf("read the core's store: %w", err)
	}
	return &reader{layout: l, it: it, meta: meta}, nil
}

func (r *reader) close() error { return r.it.Close() }

// refresh has the reader of a batch see what was written to that since.
func (r *reader) refresh() {
	r.it.SetOptions(&pebble.IterOptions{LowerBound: r.span.Start, UpperBound: r.span.End})
}

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

// atParts is at for what is needed of the pair.
func (r *reader) atParts(key []byte, revision uint64, need part) (*storepb.KeyValue, error) {
	if need == wholePair {
		return r.at(key, revision)
	}
	if !r.it.SeekGE(r.layout.version(key, revision)) {
		return nil, r.it.Error()
	}
	found, at, err := decodeVersionKey(r.it.Key())
	if err != nil || !bytes.Equal(found, key) {
		return nil, nil // as in version
	}
	return r.decodeParts(found, at, need)
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
	kv, err := r.decodeParts(key, revision, wholePair)
	if kv == nil && err == nil {
		kv = &storepb.KeyValue{Key: bytes.Clone(key), ModRevision: revision}
	}
	return kv, err
}

// part is how much of a pair is needed.
type part int

const (
	// mereKey is for counting: what is returned is shared, and empty but for a version.
	mereKey part = iota
	// withoutValue is all but the value, which may be large.
	withoutValue
	wholePair
)

var counted = &storepb.KeyValue{Version: 1}

// decodeParts is decode for what is needed of a pair; nil if it is a deletion.
func (r *reader) decodeParts(
	key []byte, revision uint64, need part,
) (*storepb.KeyValue, error) {
	data, err := r.it.ValueAndErr()
	if err != nil {
		return nil, err
	}
	var record storepb.VersionRecord
	if need == wholePair {
		err = record.UnmarshalVT(data)
	} else {
		err = decodeHead(data, &record)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("version %d of key %s is malformed: %w", revision, keys.Pretty(key), err)
	case record.Tombstone || record.Version == 0:
		return nil, nil
	case need == mereKey:
		return counted, nil
	}
	return &storepb.KeyValue{Key: bytes.Clone(key), ModRevision: revision,
		CreateRevision: record.CreateRevision, Version: record.Version, Value: record.Value,
		Lease: record.Lease}, nil
}

// decodeHead decodes all of a VersionRecord but the value.
func decodeHead(data []byte, record *storepb.VersionRecord) error {
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		if kind != protowire.VarintType {
			if n = protowire.ConsumeFieldValue(field, kind, data); n < 0 {
				return protowire.ParseError(n)
			}
			data = data[n:]
			continue
		}
		number, n := protowire.ConsumeVarint(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		switch field {
		case 1:
			record.Tombstone = number != 0
		case 2:
			record.CreateRevision = number
		case 3:
			record.Version = number
		case 4:
			record.Lease = int64(number)
		}
	}
	return nil
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

// events visits the changes from a position on, in order, each with its number within its revision,
// until visit says false. versions reads the same state.
func (r *reader) events(
	from watch.Position, visit func(kv *storepb.KeyValue, n uint32, versions *reader) (bool, error),
) error {
	if from.Revision < r.meta.Compacted {
		return &CompactedError{Revision: r.meta.Compacted}
	}
	// The versions are read with an iterator of their own, of the same state.
	it, err := r.it.Clone(pebble.CloneOptions{})
	if err != nil {
		return fmt.Errorf("read the core's events: %w", err)
	}
	versions := &reader{layout: r.layout, it: it, meta: r.meta}
	defer versions.close()
	end := r.end(tableEvent)
	for ok := r.seek(r.event(from.Revision, from.Number), end); ok; ok = r.next(end) {
		revision, n, err := decodeEventKey(r.it.Key())
		if err != nil {
			return err
		}
		key, err := r.it.ValueAndErr()
		if err != nil {
			return err
		}
		kv, err := versions.version(key, revision)
		if err != nil {
			return err
		}
		if kv == nil || kv.ModRevision != revision {
			return fmt.Errorf("the core's store has an event of key %s at revision %d and no "+
				"such version", keys.Pretty(key), revision)
		}
		if more, err := visit(kv, n, versions); err != nil || !more {
			return err
		}
	}
	return r.it.Error()
}
