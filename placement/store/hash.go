package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/engine"
)

// sumOfNothing is the sum of a store without anything that counts: that of the name of etcd's table
// of keys, with which etcd's sums begin. A sum of 0 would look like an answer without one.
var sumOfNothing = crc32.Checksum([]byte("key"), castagnoli)

// Hash is a sum over the history of the keys. It is the same on all members for the same Revision
// and the same Compacted.
type Hash struct {
	// Sum is a CRC-32C over all versions of all keys up to Revision that the compaction leaves, also
	// while it has not removed all others yet. Without any version it is sumOfNothing.
	Sum uint32
	// Revision is up to where the sum goes, Compacted the lowest revision that could be read when it
	// was made, and Newest the store's revision then.
	Revision, Compacted, Newest uint64
}

// Hash sums up this member's history up to a revision; 0 is the newest that it has. It reads all of
// it. A compacted revision is a CompactedError, one yet to come ErrFutureRevision.
func (s *Store) Hash(ctx context.Context, revision uint64) (Hash, error) {
	var h Hash
	err := s.read(func(r *reader) error {
		at, err := r.checkRevision(revision)
		if err != nil {
			return err
		}
		h = Hash{Revision: at, Compacted: r.meta.Compacted, Newest: r.meta.Revision}
		h.Sum, err = r.sumVersions(ctx, at)
		return err
	})
	return h, err
}

// sumVersions is over what the versions mean, and not over how they are encoded.
func (r *reader) sumVersions(ctx context.Context, upTo uint64) (sum uint32, err error) {
	var head, last []byte
	end, passed, summed := r.end(tableVersion), 0, false
	for ok := r.seek(r.table(tableVersion), end); ok; ok = r.next(end) {
		if passed++; passed%interruptEvery == 0 {
			if err := ctx.Err(); err != nil {
				return 0, err
			}
		}
		key, revision, err := decodeVersionKey(r.it.Key())
		if err != nil {
			return 0, err
		}
		if revision <= r.meta.Compacted {
			if last != nil && bytes.Equal(key, last) {
				continue // it has a successor there
			}
			last = append(last[:0], key...)
		}
		if revision > upTo {
			continue
		}
		kv, err := r.decode(key, revision)
		if err != nil {
			return 0, err
		}
		if kv.Version == 0 && revision < r.meta.Compacted {
			continue
		}
		summed = true
		head = appendHead(head[:0], kv)
		for _, part := range [][]byte{head, kv.Key, kv.Value} {
			sum = crc32.Update(sum, castagnoli, part)
		}
	}
	if !summed {
		sum = sumOfNothing
	}
	return sum, r.it.Error()
}

func appendHead(to []byte, kv *storepb.KeyValue) []byte {
	for _, n := range []uint64{kv.ModRevision, kv.CreateRevision, kv.Version, uint64(kv.Lease),
		uint64(len(kv.Key)), uint64(len(kv.Value))} {
		to = binary.BigEndian.AppendUint64(to, n)
	}
	return to
}

// HashAll sums up everything that this member has in the store but how far its log is applied, and
// returns the revision that it has. It reads all of it. Without anything the sum is sumOfNothing.
func (s *Store) HashAll(ctx context.Context) (sum uint32, revision uint64, err error) {
	err = s.read(func(r *reader) error {
		revision = r.meta.Revision
		passed, summed := 0, false
		for ok := r.it.First(); ok; ok = r.it.Next() {
			if passed++; passed%interruptEvery == 0 {
				if err := ctx.Err(); err != nil {
					return err
				}
			}
			if bytes.Equal(r.it.Key(), r.layout.applied) {
				continue
			}
			summed = true
			value, err := r.it.ValueAndErr()
			if err != nil {
				return err
			}
			if bytes.Equal(r.it.Key(), r.layout.meta) {
				// Members of the version before do not count bytes.
				meta := copyMeta(r.meta)
				meta.Bytes = 0
				if value, err = meta.MarshalVT(); err != nil {
					return err
				}
			}
			head := number(uint64(len(r.it.Key())))
			head = binary.BigEndian.AppendUint64(head, uint64(len(value)))
			for _, part := range [][]byte{head, r.it.Key()[localPrefixLength:], value} {
				sum = crc32.Update(sum, castagnoli, part)
			}
		}
		if !summed {
			sum = sumOfNothing
		}
		return r.it.Error()
	})
	return sum, revision, err
}

// AppliedIndex is that of the last entry of the log that this member has applied.
func (s *Store) AppliedIndex() uint64 { return s.index.Load() }

// GiveBack has the disk of this member take back what was removed from the store: it flushes and
// compacts what the store has of the database, also if there is little room. It waits for that, and
// ends with ErrNoSpace if the disk has too little room even so.
func (s *Store) GiveBack(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	if !s.begin() {
		return ErrClosed
	}
	defer s.mu.readers.Done()
	err := s.config.State.GiveBack(ctx, s.layout.span)
	if errors.Is(err, engine.ErrNoRoom) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

// DiskBytes is about how many bytes the store takes on this member's disk. What is in memory yet,
// and in the log, is not counted. Bytes is its size as the quota counts it.
func (s *Store) DiskBytes() (uint64, error) {
	var size uint64
	err := s.read(func(*reader) (err error) { // so that the database stays open
		size, err = s.config.State.DiskUsage(s.layout.span)
		return err
	})
	return size, err
}
