package tables

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/imports"
	"github.com/tidemarkdb/tidemark/placement/store/keycount"
	"github.com/tidemarkdb/tidemark/placement/store/newest"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Source is a readable state: the state database, or a batch on top of it.
type Source interface {
	NewIter(*pebble.IterOptions) (*pebble.Iterator, error)
}

// Reader reads one consistent state of the store: its iterator sees neither later batches nor a
// snapshot that is installed meanwhile, and the meta record is read through the same iterator. One
// goroutine uses it. It keeps memtables and files from being freed, so the caller closes it soon.
type Reader struct {
	*Layout
	Iterator *pebble.Iterator
	Meta     *storepb.MetaRecord
	// Interrupted, if set, is called at intervals during a long read. Its error ends the read.
	Interrupted func() error
	// Counts, if set, caches the counts of ranges.
	Counts *RangeCounts
	// Blocks, if set, counts keys at the newest revisions without a visit to each.
	Blocks *keycount.Blocks
	// Vacant, if set, remembers spans without keys, which walks skip.
	Vacant *keycount.Blocks
	// Newest, if set, is the cache of the newest versions. Only Apply's reader has it.
	Newest *newest.Cache
	// Passed counts the keys that walks have visited.
	Passed uint64
}

func NewReader(l *Layout, s Source) (*Reader, error) {
	r, err := NewReaderWith(l, s, &storepb.MetaRecord{Revision: InitialRevision})
	if err != nil {
		return nil, err
	}
	value, ok, err := r.Get(l.Meta)
	if err == nil && ok {
		r.Meta = &storepb.MetaRecord{}
		if err = proto.Unmarshal(value, r.Meta); err == nil &&
			(r.Meta.Revision < InitialRevision || r.Meta.Compacted > r.Meta.Revision) {
			err = fmt.Errorf("revision %d, compacted %d", r.Meta.Revision, r.Meta.Compacted)
		}
		if err != nil {
			err = fmt.Errorf("meta record of the core's store is malformed: %w", err)
		}
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// NewReaderWith is NewReader for a caller that has the meta record.
func NewReaderWith(l *Layout, s Source, meta *storepb.MetaRecord) (*Reader, error) {
	it, err := s.NewIter(&pebble.IterOptions{LowerBound: l.Span.Start, UpperBound: l.Span.End})
	if err != nil {
		return nil, fmt.Errorf("read the core's store: %w", err)
	}
	return &Reader{Layout: l, Iterator: it, Meta: meta}, nil
}

func (r *Reader) Close() error { return r.Iterator.Close() }

// Refresh makes the reader of a batch see later writes to the batch.
func (r *Reader) Refresh() {
	r.Iterator.SetOptions(&pebble.IterOptions{LowerBound: r.Span.Start, UpperBound: r.Span.End})
}

// Seek moves to the first engine key at or after start, and reports whether it is before end.
func (r *Reader) Seek(start, end []byte) bool {
	return r.Iterator.SeekGE(start) && bytes.Compare(r.Iterator.Key(), end) < 0
}

// Next moves to the next engine key, and reports whether it is before end.
func (r *Reader) Next(end []byte) bool {
	return r.Iterator.Next() && bytes.Compare(r.Iterator.Key(), end) < 0
}

// Get reads an engine key. The value is valid until the iterator moves.
func (r *Reader) Get(key []byte) (value []byte, ok bool, err error) {
	if !r.Iterator.SeekGE(key) || !bytes.Equal(r.Iterator.Key(), key) {
		return nil, false, r.Iterator.Error()
	}
	value, err = r.Iterator.ValueAndErr()
	return value, err == nil, err
}

// Applied is the index and the term of the last applied entry of the state; 0 if no entry is
// applied.
func (r *Reader) Applied() (index, term uint64, err error) {
	value, ok, err := r.Get(r.Layout.Applied)
	if err != nil || !ok {
		return 0, 0, err
	}
	return DecodeApplied(value)
}

// At returns the newest version of a key at or below a revision; nil if there is none, or if it is
// a deletion.
func (r *Reader) At(key []byte, revision uint64) (*storepb.KeyValue, error) {
	kv, err := r.Version(key, revision)
	if err != nil || kv == nil || kv.Version == 0 {
		return nil, err
	}
	return kv, nil
}

// atParts is At for the needed part of the pair.
func (r *Reader) atParts(key []byte, revision uint64, need Part) (*storepb.KeyValue, error) {
	if need == WholePair {
		return r.At(key, revision)
	}
	if !r.Iterator.SeekGE(r.Layout.Version(key, revision)) {
		return nil, r.Iterator.Error()
	}
	found, at, err := DecodeVersionKey(r.Iterator.Key())
	if err != nil || !bytes.Equal(found, key) {
		return nil, nil // as in Version
	}
	return r.DecodeParts(found, at, need)
}

// Version is like At, but returns a key-value with version 0 for a deletion.
func (r *Reader) Version(key []byte, revision uint64) (*storepb.KeyValue, error) {
	if !r.Iterator.SeekGE(r.Layout.Version(key, revision)) {
		return nil, r.Iterator.Error()
	}
	found, at, err := DecodeVersionKey(r.Iterator.Key())
	if err != nil || !bytes.Equal(found, key) {
		// The iterator stands on the next table.
		return nil, nil
	}
	return r.decode(found, at)
}

// decode decodes the version on which the iterator stands. The key is copied.
func (r *Reader) decode(key []byte, revision uint64) (*storepb.KeyValue, error) {
	kv, err := r.DecodeParts(key, revision, WholePair)
	if kv == nil && err == nil {
		kv = &storepb.KeyValue{Key: bytes.Clone(key), ModRevision: revision}
	}
	return kv, err
}

// Part is the part of a pair that a read needs.
type Part int

const (
	// MereKey is for counts of keys: the returned pair is shared, and has only a version.
	MereKey Part = iota
	// WithoutValue is the pair without its value, which may be large.
	WithoutValue
	WholePair
)

var counted = &storepb.KeyValue{Version: 1}

// DecodeParts is decode for the needed part of a pair; nil for a deletion.
func (r *Reader) DecodeParts(
	key []byte, revision uint64, need Part,
) (*storepb.KeyValue, error) {
	data, err := r.Iterator.ValueAndErr()
	if err != nil {
		return nil, err
	}
	var record storepb.VersionRecord
	if need == WholePair {
		err = proto.Unmarshal(data, &record)
	} else {
		err = decodeHead(data, &record)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("version %d of key %s is malformed: %w", revision, keys.Pretty(key), err)
	case record.Tombstone || record.Version == 0:
		return nil, nil
	case need == MereKey:
		return counted, nil
	}
	return &storepb.KeyValue{Key: bytes.Clone(key), ModRevision: revision,
		CreateRevision: record.CreateRevision, Version: record.Version, Value: record.Value,
		Lease: record.Lease}, nil
}

// decodeHead decodes a VersionRecord without its value.
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

// CheckRevision returns the revision of a read, with 0 replaced by the newest, or an error if it
// cannot be read.
func (r *Reader) CheckRevision(revision uint64) (uint64, error) {
	switch {
	case revision == 0:
		return r.Meta.Revision, nil
	case revision > r.Meta.Revision:
		return 0, fmt.Errorf("%w: revision %d was asked for, the newest is %d", command.ErrFutureRevision,
			revision, r.Meta.Revision)
	case revision < r.Meta.Compacted:
		return 0, &command.CompactedError{Revision: r.Meta.Compacted}
	}
	return revision, nil
}

// deletionBytes exceeds the size of a deletion's record. A larger record has a value, and need not
// be read to tell.
const deletionBytes = 16

// AtDeletion reports whether the version on which the iterator stands is a deletion.
func (r *Reader) AtDeletion() (bool, error) {
	value := r.Iterator.LazyValue()
	if value.Len() >= deletionBytes {
		return false, nil
	}
	kv, err := r.DecodeParts(nil, 0, MereKey)
	return kv == nil && err == nil, err
}

// remembered counts the versions found in the cache, some of which are checked.
var remembered invariants.Every

// NewestAt is At for a revision at or above all visible revisions. It uses the cache of newest
// versions. The key-value is shared, and must not be changed. It may lack its value unless need is
// WholePair.
func (r *Reader) NewestAt(key []byte, revision uint64, need Part) (*storepb.KeyValue, error) {
	if r.Newest == nil {
		return r.atParts(key, revision, need)
	}
	whole := need == WholePair
	kv, known := r.Newest.Get(key, whole)
	if known {
		if invariants.Enabled && remembered.Due(4) {
			stored, err := r.atParts(key, revision, WithoutValue)
			invariants.Check(err != nil || (kv == nil) == (stored == nil) &&
				kv.GetModRevision() == stored.GetModRevision() &&
				kv.GetVersion() == stored.GetVersion() && kv.GetLease() == stored.GetLease(),
				"the store: the newest version of key %s is of revision %d, and %d is remembered",
				keys.Pretty(key), stored.GetModRevision(), kv.GetModRevision())
		}
		return kv, nil
	}
	kv, err := r.atParts(key, revision, need)
	if err == nil {
		r.Newest.Read(key, kv, whole)
	}
	return kv, err
}

// CopyMeta returns a copy whose fields may be set. Messages in the fields are shared, and must not
// be changed.
func CopyMeta(m *storepb.MetaRecord) *storepb.MetaRecord {
	return &storepb.MetaRecord{Revision: m.Revision, Compacted: m.Compacted, Import: m.Import,
		CompactionRest: m.CompactionRest, Bytes: m.Bytes}
}

// Importing reports whether an import is running.
func Importing(meta *storepb.MetaRecord) bool { return imports.UnderWay(meta.Import) }
