package etcdfile

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/tidemarkdb/tidemark/placement/store"
)

const (
	// StorageVersion is the version of etcd whose files these are.
	StorageVersion = "3.6.0"

	// A transaction of the file takes this many changes, or bytes of values, in memory.
	changesPerCommit = 10_000
	bytesPerCommit   = 16 << 20

	tombstoneMark = 't'
	openTimeout   = 0 // no other process uses the file
)

// grantsBucket is a bucket of Tidemark, which etcd keeps and does not read: the roles' rights to
// the data of keyspaces. Keys are names of roles, and values storepb.RoleRecord with only Keyspaces
// set. Keyspaces are identified by their ids, which are valid in the cluster of the file only.
const grantsBucket = "tidemarkGrants"

var buckets = []string{"key", "meta", "lease", "alarm", "cluster", "members", "members_removed",
	"auth", "authUsers", "authRoles", grantsBucket}

// Write writes a state to a new file below a directory, which must exist, and returns its path. The
// caller removes the file; after an error there is none.
func Write(ctx context.Context, dir string, e *store.Export) (path string, err error) {
	return create(dir, func(db *bbolt.DB) error {
		w := &writer{db: db}
		err := w.all(ctx, e)
		if w.tx != nil {
			err = errors.Join(err, w.tx.Rollback())
		}
		return err
	})
}

// Remove removes a file written by Write.
func Remove(path string) error { return os.RemoveAll(filepath.Dir(path)) }

// create makes a file in a new directory below dir.
func create(dir string, fill func(*bbolt.DB) error) (path string, err error) {
	own, err := os.MkdirTemp(dir, "etcd-snapshot-")
	if err != nil {
		return "", fmt.Errorf("directory for a snapshot in etcd's format: %w", err)
	}
	path = filepath.Join(own, "db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true, NoFreelistSync: true,
		FreelistType: bbolt.FreelistMapType, Timeout: openTimeout})
	if err == nil {
		err = errors.Join(fill(db), db.Close())
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("write a snapshot in etcd's format: %w", err), Remove(path))
	}
	return path, nil
}

// writer keeps a transaction open, and begins another when that is large.
type writer struct {
	db             *bbolt.DB
	tx             *bbolt.Tx
	changes, bytes int
	// last is the newest revision that has a change.
	last uint64
}

func (w *writer) all(ctx context.Context, e *store.Export) error {
	if err := w.begin(); err != nil {
		return err
	}
	if err := w.makeBuckets(); err != nil {
		return err
	}
	if err := records(e, w.put); err != nil {
		return err
	}
	if err := e.Changes(ctx, w.change); err != nil {
		return err
	}
	if err := w.reached(e.Revision); err != nil {
		return err
	}
	return w.commit()
}

func (w *writer) makeBuckets() error {
	for _, name := range buckets {
		if _, err := w.tx.CreateBucket([]byte(name)); err != nil {
			return err
		}
	}
	return nil
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

// put writes a record of a bucket. It commits a large transaction first.
func (w *writer) put(bucket string, key, value []byte) error {
	if w.changes >= changesPerCommit || w.bytes >= bytesPerCommit {
		if err := w.commit(); err != nil {
			return err
		}
		if err := w.begin(); err != nil {
			return err
		}
	}
	w.changes++
	w.bytes += len(value)
	return w.tx.Bucket([]byte(bucket)).Put(key, value)
}

// change writes one version of a key.
func (w *writer) change(c store.Change) error {
	number := uint64(c.Number)
	if !c.Numbered {
		number = nextNumber(w.tx.Bucket([]byte("key")), c.KV.ModRevision)
	}
	w.last = max(w.last, c.KV.ModRevision)
	key, value, err := changeRecord(c, number)
	if err != nil {
		return err
	}
	return w.put("key", key, value)
}

// reached marks the store's revision if that has no change: etcdutl takes the newest change for the
// store's revision, in `snapshot status`, and as the base of `snapshot restore --bump-revision`.
// The mark is the deletion of a key without a name, which no request can see.
func (w *writer) reached(revision uint64) error {
	if revision <= max(w.last, 1) {
		return nil
	}
	return w.tx.Bucket([]byte("key")).Put(append(revisionKey(revision, 0), tombstoneMark), nil)
}

// nextNumber returns a number that no change of a revision has yet.
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

// revisionKey encodes a revision, and the number of a change within it, like etcd.
func revisionKey(revision, number uint64) []byte {
	key := make([]byte, 0, revisionKeyLength+1)
	key = append(binary.BigEndian.AppendUint64(key, revision), '_')
	return binary.BigEndian.AppendUint64(key, number)
}
