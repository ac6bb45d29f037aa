package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
	"github.com/tidemarkdb/tidemark/range/engine"
)

// Hash is a sum over the history of the keys. It is the same on all members for the same Revision
// and the same Compacted.
type Hash struct {
	// Sum is a CRC-32C over all versions of all keys up to Revision that the compaction leaves, also
	// while it has not removed all others yet. Without any version it is sumOfNothing.
	Sum uint32
	// Revision is the last revision in the sum, Compacted the lowest revision that could be read
	// when it was made, and Newest the store's revision then.
	Revision, Compacted, Newest uint64
}

// Hash sums up this member's history up to a revision; 0 is the newest that it has. It reads all of
// it. A compacted revision is a CompactedError, one yet to come ErrFutureRevision.
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

// HashAll sums up everything that this member has in the store except its applied index, and
// returns the revision. It reads all of it. The sum of an empty store is sumOfNothing.
func (s *Store) HashAll(ctx context.Context) (sum uint32, revision uint64, err error) {
	err = s.ReadState(func(r *tables.Reader) error {
		revision = r.Meta.Revision
		sum, err = r.SumAll(ctx)
		return err
	})
	return sum, revision, err
}

// GiveBack returns the room of removed data to this member's disk: it flushes and compacts the
// store's part of the database, even if there is little room. It waits for that, and ends with
// ErrNoSpace if the disk has too little room for it.
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
// the log. Bytes is its size as the quota counts it.
func (s *Store) DiskBytes() (uint64, error) {
	var size uint64
	err := s.ReadState(func(*tables.Reader) (err error) { // so that the database stays open
		size, err = s.config.State.DiskUsage(s.Layout.Span)
		return err
	})
	return size, err
}
