package snapshot

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/engine"
)

const (
	// leastPause and mostPause bound the pause after a snapshot for which there was no room.
	leastPause = time.Minute
	mostPause  = 15 * time.Minute
	// The free space must grow by the reserve divided by spaceGained to end a pause early.
	spaceGained = 2
)

// spacePause is for a partition whose snapshots find no room on the disk. The leader sends them
// again and again, and each attempt writes, and removes, as much as there is room for. So an
// attempt that found no room is followed by a pause, longer each time, until there is more room
// than at its beginning. The pause ends at some time in any case, since the partition may have
// become smaller.
type spacePause struct {
	mu    sync.Mutex
	pause time.Duration
	// until is when the pause ends.
	until time.Time
	// found is the free space at the beginning of the last attempt that found no room.
	found uint64
}

// check returns nil if a snapshot may be received with the given free space.
func (s *spacePause) check(now time.Time, free, reserve uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !now.Before(s.until) || free >= s.found+reserve/spaceGained {
		return nil
	}
	return fmt.Errorf("%w: an earlier one did not fit into %d free bytes, and %d are free now; it "+
		"is tried again in %s, or when more is free", engine.ErrNoRoom, s.found, free,
		s.until.Sub(now).Round(time.Second))
}

// ended notes the end of a snapshot that began with the given free space.
func (s *spacePause) ended(now time.Time, began uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.pause, s.until, s.found = 0, time.Time{}, 0
	case errors.Is(err, engine.ErrNoRoom):
		s.pause = min(max(2*s.pause, leastPause), mostPause)
		s.until, s.found = now.Add(s.pause), began
	}
}
