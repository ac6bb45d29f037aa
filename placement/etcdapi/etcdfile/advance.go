package etcdfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// Advance makes the file of a later state from the file of an earlier one and change sets, which
// are applied in the order in which they were made. base is a file of Write, with or without a sum
// at its end; it is not changed. The new file is below dir, which must exist, and belongs to the
// caller (Remove); after an error there is none.
//
// A change set may begin before the present state: then only its newer changes count. ErrHole says
// that a change set begins after the present state, or goes back. Memory holds each key with
// versions that a compaction may remove, and some 100 bytes more for it.
func Advance(
	ctx context.Context, dir, base string, sets iter.Seq2[io.Reader, error],
) (path string, err error) {
	return create(dir, func(db *bbolt.DB) error {
		a := &advance{writer: writer{db: db}, ctx: ctx}
		err := a.all(base, sets)
		if a.tx != nil {
			err = errors.Join(err, a.tx.Rollback())
		}
		return err
	})
}

// advance is the state of an Advance.
type advance struct {
	writer
	ctx     context.Context
	visited int
	// revision is the revision reached so far, compacted its compaction, and tidy the compaction of
	// the base, in which nothing remains to be removed.
	revision, compacted, tidy uint64
	// others holds the records of the newest state other than its history, by bucket.
	others map[string]map[string][]byte
}

func (a *advance) all(base string, sets iter.Seq2[io.Reader, error]) error {
	if err := a.begin(); err != nil {
		return err
	}
	if err := a.makeBuckets(); err != nil {
		return err
	}
	if err := a.base(base); err != nil {
		return fmt.Errorf("%s: %w", base, err)
	}
	for set, err := range sets {
		if err == nil {
			err = a.set(set)
		}
		if err != nil {
			return err
		}
	}
	for bucket, records := range a.others {
		for key, value := range records {
			if err := a.put(bucket, []byte(key), value); err != nil {
				return err
			}
		}
	}
	if err := a.compact(); err != nil {
		return err
	}
	if err := a.reached(a.revision); err != nil {
		return err
	}
	return a.commit()
}

// base reads the base file.
func (a *advance) base(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	p, err := openPages(file, info.Size())
	if err != nil {
		return err
	}
	a.others = map[string]map[string][]byte{}
	if err := p.buckets(changeBuckets, func(bucket string, e element) error {
		return a.record(bucket, bytes.Clone(e.key), bytes.Clone(e.value))
	}); err != nil {
		return err
	}
	a.revision, a.tidy = max(a.revision, a.compacted, 1), a.compacted
	return nil
}

// set reads a change set.
func (a *advance) set(in io.Reader) error {
	before := a.revision
	var set ChangeSet
	err := readChanges(in, func(c ChangeSet) error {
		if c.After > a.revision || c.Revision < a.revision {
			return fmt.Errorf("%w: the state is at revision %d, and the next ones lead from revision %d "+
				"to %d", ErrHole, a.revision, c.After, c.Revision)
		}
		set = c
		a.others = map[string]map[string][]byte{}
		return nil
	}, func(bucket string, key, value []byte) error {
		if bucket == "key" {
			at, _, err := decodeRevision(key)
			if err != nil {
				return err
			}
			if at.main <= set.After || at.main > set.Revision {
				return fmt.Errorf("%w: they have revision %d, and lead from %d to %d", ErrChanges, at.main,
					set.After, set.Revision)
			}
			if at.main <= before {
				return nil
			}
		}
		return a.record(bucket, key, value)
	})
	a.revision = max(a.revision, set.Revision)
	return err
}

// record takes a record of the newest state; it keeps key and value.
func (a *advance) record(bucket string, key, value []byte) error {
	if a.visited++; a.visited%1024 == 0 {
		if err := a.ctx.Err(); err != nil {
			return err
		}
	}
	if bucket == "key" {
		return a.version(key, value)
	}
	if bucket == "meta" && (string(key) == "finishedCompactRev" ||
		string(key) == "scheduledCompactRev") {
		at, _, err := decodeRevision(value)
		if err != nil {
			return err
		}
		a.compacted = max(a.compacted, at.main)
	}
	if a.others[bucket] == nil {
		a.others[bucket] = map[string][]byte{}
	}
	a.others[bucket][string(key)] = value
	return nil
}

// version takes a version of a key. A mark that only says which revision was reached is dropped:
// reached makes a new one if the last revision has no change.
func (a *advance) version(key, value []byte) error {
	at, deleted, err := decodeRevision(key)
	if err != nil {
		return err
	}
	kv := &mvccpb.KeyValue{}
	if err := proto.Unmarshal(value, kv); err != nil {
		return damaged("what it has at revision %d: %v", at.main, err)
	}
	a.revision = max(a.revision, at.main)
	if len(kv.Key) == 0 && (deleted || len(value) == 0) {
		return nil
	}
	a.last = max(a.last, at.main)
	return a.put("key", key, value)
}

// compact removes the versions that the compaction has made invisible: those below its revision
// that are deletions, or have a newer version up to it.
func (a *advance) compact() error {
	if a.compacted == a.tidy {
		return nil
	}
	// newest maps each key to its newest version up to the compaction.
	newest := map[string]string{}
	end := revisionKey(a.compacted+1, 0)
	if err := a.versions(end, func(at, value []byte) (bool, error) {
		key, err := keyOf(value)
		newest[key] = string(at)
		return false, err
	}); err != nil {
		return err
	}
	return a.versions(revisionKey(a.compacted, 0), func(at, value []byte) (bool, error) {
		key, err := keyOf(value)
		return newest[key] != string(at) || at[len(at)-1] == tombstoneMark &&
			len(at) > revisionKeyLength, err
	})
}

// versions visits the versions below a revision, in their order, and removes those for which visit
// returns true.
func (a *advance) versions(end []byte, visit func(at, value []byte) (bool, error)) error {
	for next := []byte{}; next != nil; {
		if err := errors.Join(a.ctx.Err(), a.commit()); err != nil {
			return err
		}
		if err := a.begin(); err != nil {
			return err
		}
		b := a.tx.Bucket([]byte("key"))
		cursor, visited := b.Cursor(), 0
		var gone [][]byte
		at, value := cursor.Seek(next)
		for ; at != nil && bytes.Compare(at, end) < 0 && visited < changesPerCommit; visited++ {
			remove, err := visit(at, value)
			if err != nil {
				return err
			}
			if remove {
				gone = append(gone, bytes.Clone(at))
			}
			at, value = cursor.Next()
		}
		if next = nil; at != nil && bytes.Compare(at, end) < 0 {
			next = bytes.Clone(at)
		}
		for _, at := range gone {
			if err := b.Delete(at); err != nil {
				return err
			}
		}
	}
	return nil
}

// keyOf returns the key of a version.
func keyOf(value []byte) (string, error) {
	kv := &mvccpb.KeyValue{}
	if err := proto.Unmarshal(value, kv); err != nil {
		return "", damaged("a version: %v", err)
	}
	return string(kv.Key), nil
}
