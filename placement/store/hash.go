package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
	"github.com/tidemarkdb/tidemark/range/engine"
)

// Hash is a checksum of the history of the keys. Members with the same Revision and Compacted have
// the same Sum.
type Hash struct {
	// Sum is a CRC-32C over the versions of all keys up to Revision that the compaction leaves.
	// Versions that the compaction has yet to remove do not count. Without any version, Sum is
	// sumOfNothing.
	Sum uint32
	// Revision is the last revision in the sum. Compacted was the lowest readable revision, and
	// Newest the store's revision, when the sum was made.
	Revision, Compacted, Newest uint64
}

// Hash computes the checksum of this member's history up to a revision; 0 means its newest. It
// reads the whole history. A compacted revision returns a CompactedError, a future revision
// ErrFutureRevision.
func (s *Store) Hash(ctx context.Context, revision uint64) (Hash, error) {
	var h Hash
	err := s.ReadState(func(r *tables.Reader) error {
		at, err := r.CheckRevision(revision)
		if err != nil {
			return err
		}
		h = Hash{Revision: at, Compacted: r.Meta.Compacted, Newest: r.Meta.Revision}
		h.Sum, err = r.SumVersions(ctx, at)
		return err
	})
	return h, err
}

// HashAll computes the checksum of everything that this member has in the store except its applied
// index, and returns the revision. It reads the whole store. The sum of an empty store is
// sumOfNothing.
func (s *Store) HashAll(ctx context.Context) (sum uint32, revision uint64, err error) {
	err = s.ReadState(func(r *tables.Reader) error {
		revision = r.Meta.Revision
		sum, err = r.SumAll(ctx)
		return err
	})
	return sum, revision, err
}

// GiveBack returns the space of removed data to this member's disk: it flushes and compacts the
// store's part of the database. It waits for the compaction, and returns ErrNoSpace if the disk has
// too little room for it.
func (s *Store) GiveBack(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	if !s.Pin() {
		return command.ErrClosed
	}
	defer s.Unpin()
	err := s.config.State.GiveBack(ctx, s.Layout.Span)
	if errors.Is(err, engine.ErrNoRoom) {
		return fmt.Errorf("%w: %w", command.ErrNoSpace, err)
	}
	return err
}

// DiskBytes estimates how many bytes the store takes on this member's disk, without memtables and
// the log. Bytes returns the size that the quota counts.
func (s *Store) DiskBytes() (uint64, error) {
	var size uint64
	err := s.ReadState(func(*tables.Reader) (err error) { // keeps the database open
		size, err = s.config.State.DiskUsage(s.Layout.Span)
		return err
	})
	return size, err
}
