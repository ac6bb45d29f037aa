package etcdfile

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/tidemarkdb/tidemark/placement/store"
)

// A change set is the difference between an earlier and a later state: the changes of keys in
// between, and all leases, users and roles of the later state. It is a stream of records of the
// file that would be written of the later state:
//
//	changesMagic
//	after (8), revision (8)   big endian; the changes are those above after, up to revision
//	state (32)                SHA-256 of the records of leases, users and roles
//	bucket (1), size of key (uvarint), key, size of value (uvarint), value; and so on
//	0 (1), number of records (8, big endian)
//
// Records of the bucket of keys come last, in their order. A bucket is written as its place in
// changeBuckets, counted from 1. The stream has no checksum of its own; whatever stores it must
// have one.
const changesMagic = "tidemark changes 1\n"

var changeBuckets = []string{"key", "meta", "lease", "auth", "authUsers", "authRoles", grantsBucket}

const (
	// Bounds on the sizes in a record.
	maxRecordKey   = 64 << 10
	maxRecordValue = maxPageBytes
)

var (
	// ErrChanges says that data is not a change set, or a damaged one.
	ErrChanges = errors.New("the changes of the coordination store are damaged, or written by a " +
		"later version")
	// ErrHole says that changes between a state and a change set are missing.
	ErrHole = errors.New("changes of the coordination store are missing")
)

// ChangeSet describes a change set.
type ChangeSet struct {
	// After is the revision of the earlier state, and Revision that of the later one.
	After, Revision uint64
	// State is the SHA-256 of the leases, users and roles of the later state. If it equals that of
	// the change set before, and After equals Revision, nothing has changed since.
	State [sha256.Size]byte
}

// WriteChanges writes the change set of a state since an earlier revision of the same store, and
// returns its description. It needs no disk space, and little memory. A store.CompactedError says
// that the state no longer has all changes since then: a new copy must be made (Write).
// store.ErrFutureRevision says that the store has not reached the revision, as after it was
// restored to an earlier state.
func WriteChanges(
	ctx context.Context, out io.Writer, e *store.Export, after uint64,
) (c ChangeSet, err error) {
	c = ChangeSet{After: after, Revision: e.Revision}
	sum := sha256.New()
	err = stateRecords(e, func(bucket string, key, value []byte) error {
		_, err := sum.Write(appendRecord(nil, bucket, key, value))
		return err
	})
	if err != nil {
		return c, err
	}
	sum.Sum(c.State[:0])
	w := bufio.NewWriterSize(out, 1<<20)
	head := append([]byte(changesMagic), binary.BigEndian.AppendUint64(nil, c.After)...)
	head = append(binary.BigEndian.AppendUint64(head, c.Revision), c.State[:]...)
	if _, err := w.Write(head); err != nil {
		return c, err
	}
	count := uint64(0)
	var buffer []byte
	put := func(bucket string, key, value []byte) error {
		count++
		buffer = appendRecord(buffer[:0], bucket, key, value)
		_, err := w.Write(buffer)
		return err
	}
	if err := records(e, put); err != nil {
		return c, err
	}
	if err := e.ChangesSince(ctx, after, func(change store.Change) error {
		key, value, err := changeRecord(change, uint64(change.Number))
		if err != nil {
			return err
		}
		return put("key", key, value)
	}); err != nil {
		return c, err
	}
	if _, err := w.Write(binary.BigEndian.AppendUint64([]byte{0}, count)); err != nil {
		return c, err
	}
	return c, w.Flush()
}

func appendRecord(b []byte, bucket string, key, value []byte) []byte {
	for i, name := range changeBuckets {
		if name == bucket {
			b = append(b, byte(i+1))
		}
	}
	b = append(binary.AppendUvarint(b, uint64(len(key))), key...)
	return append(binary.AppendUvarint(b, uint64(len(value))), value...)
}

// readChanges reads a change set, and visits its records; the visitor owns key and value. It trusts
// nothing that it reads: ErrChanges says that the data was not written by WriteChanges. begin is
// called before the first record.
func readChanges(in io.Reader, begin func(ChangeSet) error,
	visit func(bucket string, key, value []byte) error) error {
	r := bufio.NewReaderSize(in, 1<<20)
	head := make([]byte, len(changesMagic)+8+8+sha256.Size)
	if _, err := io.ReadFull(r, head); err != nil {
		return badChanges(err, "the head")
	}
	rest, ok := bytes.CutPrefix(head, []byte(changesMagic))
	if !ok {
		return fmt.Errorf("%w: they begin with %q", ErrChanges, head[:len(changesMagic)])
	}
	c := ChangeSet{After: binary.BigEndian.Uint64(rest), Revision: binary.BigEndian.Uint64(rest[8:]),
		State: [sha256.Size]byte(rest[16:])}
	if c.After > c.Revision {
		return fmt.Errorf("%w: they lead from revision %d to %d", ErrChanges, c.After, c.Revision)
	}
	if err := begin(c); err != nil {
		return err
	}
	for count := uint64(0); ; count++ {
		bucket, err := r.ReadByte()
		switch {
		case err != nil:
			return badChanges(err, "a record")
		case bucket == 0:
			var end [8]byte
			if _, err := io.ReadFull(r, end[:]); err != nil {
				return badChanges(err, "the end")
			}
			if n := binary.BigEndian.Uint64(end[:]); n != count {
				return fmt.Errorf("%w: they have %d records, and should have %d", ErrChanges, count, n)
			}
			return nil
		case int(bucket) > len(changeBuckets):
			return fmt.Errorf("%w: there is no bucket %d", ErrChanges, bucket)
		}
		key, err := readPart(r, maxRecordKey)
		if err != nil {
			return badChanges(err, "a key")
		}
		value, err := readPart(r, maxRecordValue)
		if err != nil {
			return badChanges(err, "a value")
		}
		if err := visit(changeBuckets[bucket-1], key, value); err != nil {
			return err
		}
	}
}

// badChanges returns ErrChanges if a change set ends too early.
func badChanges(err error, what string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: they end before %s", ErrChanges, what)
	}
	return err
}

// readPart reads bytes preceded by their number. Memory grows with the bytes read, not with the
// number.
func readPart(r *bufio.Reader, limit uint64) ([]byte, error) {
	size, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, fmt.Errorf("%w: a record claims %d bytes", ErrChanges, size)
	}
	var part bytes.Buffer
	if _, err := io.CopyN(&part, r, int64(size)); err != nil {
		return nil, err
	}
	return part.Bytes(), nil
}
