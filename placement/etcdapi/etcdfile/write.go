package etcdfile

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store"
)

const (
	// StorageVersion is the version of etcd whose files these are.
	StorageVersion = "3.6.0"

	// A transaction of the file takes this many changes, or bytes of values, in memory.
	changesPerCommit = 10_000
	bytesPerCommit   = 16 << 20

	tombstoneMark = 't'
	openTimeout   = 0 // the file is this process's own
)

var buckets = []string{"key", "meta", "lease", "alarm", "cluster", "members", "members_removed",
	"auth", "authUsers", "authRoles"}

// Write writes a state to a new file below a directory, which has to exist, and returns its path.
// The caller removes the file; after an error there is none.
func Write(ctx context.Context, dir string, e *store.Export) (path string, err error) {
	own, err := os.MkdirTemp(dir, "etcd-snapshot-")
	if err != nil {
		return "", fmt.Errorf("directory for a snapshot in etcd's format: %w", err)
	}
	path = filepath.Join(own, "db")
	if err := write(ctx, path, e); err != nil {
		return "", errors.Join(fmt.Errorf("write a snapshot in etcd's format: %w", err), Remove(path))
	}
	return path, nil
}

// Remove removes a file that Write has written.
func Remove(path string) error { return os.RemoveAll(filepath.Dir(path)) }

func write(ctx context.Context, path string, e *store.Export) error {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true, NoFreelistSync: true,
		FreelistType: bbolt.FreelistMapType, Timeout: openTimeout})
	if err != nil {
		return err
	}
	w := &writer{db: db}
	err = w.all(ctx, e)
	if w.tx != nil {
		err = errors.Join(err, w.tx.Rollback())
	}
	return errors.Join(err, db.Close())
}

// writer has a transaction open, and begins another when that is large.
type writer struct {
	db             *bbolt.DB
	tx             *bbolt.Tx
	changes, bytes int
	// last is the newest revision of which there is a change.
	last uint64
}

func (w *writer) all(ctx context.Context, e *store.Export) error {
	if err := w.begin(); err != nil {
		return err
	}
	for _, name := range buckets {
		if _, err := w.tx.CreateBucket([]byte(name)); err != nil {
			return err
		}
	}
	if err := w.meta(e); err != nil {
		return err
	}
	leases, err := e.Leases()
	if err != nil {
		return err
	}
	for _, l := range leases {
		id := binary.BigEndian.AppendUint64(nil, uint64(l.ID))
		if err := w.tx.Bucket([]byte("lease")).Put(id, leaseRecord(l)); err != nil {
			return err
		}
	}
	if err := e.Changes(ctx, w.change); err != nil {
		return err
	}
	if err := w.reached(e.Revision); err != nil {
		return err
	}
	return w.commit()
}

func (w *writer) begin() (err error) {
	w.changes, w.bytes = 0, 0
	w.tx, err = w.db.Begin(true)
	return err
}

func (w *writer) commit() error {
	err := w.tx.Commit()
	w.tx = nil
	return err
}

func (w *writer) meta(e *store.Export) error {
	b := w.tx.Bucket([]byte("meta"))
	records := map[string][]byte{
		"consistent_index": binary.BigEndian.AppendUint64(nil, e.Index),
		"term":             binary.BigEndian.AppendUint64(nil, e.Term),
		"storageVersion":   []byte(StorageVersion),
	}
	if e.Compacted > 0 {
		records["finishedCompactRev"] = revisionKey(e.Compacted, 0)
		records["scheduledCompactRev"] = revisionKey(e.Compacted, 0)
	}
	for name, value := range records {
		if err := b.Put([]byte(name), value); err != nil {
			return err
		}
	}
	return nil
}

// change writes one version of a key.
func (w *writer) change(c store.Change) error {
	if w.changes >= changesPerCommit || w.bytes >= bytesPerCommit {
		if err := w.commit(); err != nil {
			return err
		}
		if err := w.begin(); err != nil {
			return err
		}
	}
	b := w.tx.Bucket([]byte("key"))
	w.last = max(w.last, c.KV.ModRevision)
	number := uint64(c.Number)
	if !c.Numbered {
		number = nextNumber(b, c.KV.ModRevision)
	}
	key := revisionKey(c.KV.ModRevision, number)
	kv := &mvccpb.KeyValue{Key: c.KV.Key}
	if c.KV.Version == 0 {
		key = append(key, tombstoneMark)
	} else {
		kv.CreateRevision, kv.ModRevision = int64(c.KV.CreateRevision), int64(c.KV.ModRevision)
		kv.Version, kv.Value, kv.Lease = int64(c.KV.Version), c.KV.Value, c.KV.Lease
	}
	value, err := proto.Marshal(kv)
	if err != nil {
		return err
	}
	w.changes++
	w.bytes += len(value)
	return b.Put(key, value)
}

// reached marks the store's revision, if it has no change: etcdutl takes the newest change for the
// store's revision, in `snapshot status` and where `snapshot restore --bump-revision` begins to
// count. The mark is the deletion of a key without a name, which no request can see.
func (w *writer) reached(revision uint64) error {
	if revision <= max(w.last, 1) {
		return nil
	}
	return w.tx.Bucket([]byte("key")).Put(append(revisionKey(revision, 0), tombstoneMark), nil)
}

// nextNumber is one that no change of a revision has yet.
func nextNumber(b *bbolt.Bucket, revision uint64) uint64 {
	cursor := b.Cursor()
	key, _ := cursor.Seek(revisionKey(revision+1, 0))
	if key == nil {
		key, _ = cursor.Last()
	} else {
		key, _ = cursor.Prev()
	}
	if len(key) < revisionKeyLength || binary.BigEndian.Uint64(key) != revision {
		return 0
	}
	return binary.BigEndian.Uint64(key[9:]) + 1
}

const revisionKeyLength = 17

// revisionKey is how etcd writes a revision, and a change within it.
func revisionKey(revision, number uint64) []byte {
	key := make([]byte, 0, revisionKeyLength+1)
	key = append(binary.BigEndian.AppendUint64(key, revision), '_')
	return binary.BigEndian.AppendUint64(key, number)
}

// leaseRecord is etcd's leasepb.Lease: id, term and rest in seconds.
func leaseRecord(l store.ExportedLease) []byte {
	var record []byte
	for field, value := range []uint64{uint64(l.ID), (l.TTLMillis + 999) / 1000,
		(l.LeftMillis + 999) / 1000} {
		if value != 0 {
			record = protowire.AppendTag(record, protowire.Number(field+1), protowire.VarintType)
			record = protowire.AppendVarint(record, value)
		}
	}
	return record
}
