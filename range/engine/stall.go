package engine

import (
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// maxMemTables is how many memtables' worth of memory may wait to be flushed, the one that
	// takes writes included.
	maxMemTables = 4
	// Writes stop when a read has to look into this many sublevels of L0: better late than with
	// unbounded reads.
	maxL0SublevelsLog   = 64
	maxL0SublevelsState = 32
	// stallCheckPeriod is how often a stalled write looks again if nothing tells it to.
	stallCheckPeriod = time.Second
)

// stall holds writes up while flushes and compactions cannot keep up. Pebble could do it, but it
// would hold them up inside its commit, with locks held, and never let them go if the disk fails at
// that moment. Here they wait at the door.
//
// What there is to look at costs Pebble's lock, so it is looked at once in a quarter of a memtable:
// memory is bounded by maxMemTables memtables and that much again.
type stall struct {
	// every is the number of bytes between two looks; since is how many came after the last one.
	every int64
	since atomic.Int64

	memTableBytes, maxMemTableBytes uint64
	maxL0Sublevels, hurrySublevels  int32

	// gate is held by the goroutine that looks, or waits. Capacity 1; the others wait for it.
	gate chan struct{}
	// progress says that a flush or a compaction has ended. Capacity 1.
	progress chan struct{}
}

func (a *stall) init(o Options, k kind) {
	a.every = int64(o.MemTableBytes / 4)
	a.memTableBytes, a.maxMemTableBytes = o.MemTableBytes, maxMemTables*o.MemTableBytes
	a.maxL0Sublevels, a.hurrySublevels = maxL0SublevelsState, hurrySublevels*compactionThreshold
	if k == kindLog {
		a.maxL0Sublevels, a.hurrySublevels = maxL0SublevelsLog, hurrySublevels*logCompactionThreshold
	}
	a.gate = make(chan struct{}, 1)
	a.progress = make(chan struct{}, 1)
}

// kick is called with Pebble's locks held.
func (a *stall) kick() {
	select {
	case a.progress <- struct{}{}:
	default:
	}
}

// admit waits until a commit of so many bytes may go on.
func (s *store) admit(size int) error {
	a := &s.stall
	s.g.unflushed.commit(size)
	if a.since.Add(int64(size)) < a.every {
		return nil
	}
	select {
	case a.gate <- struct{}{}:
	case <-s.g.failed:
		return s.g.err()
	}
	defer func() { <-a.gate }()
	if a.since.Load() < a.every {
		return nil // Another one has looked meanwhile.
	}
	for stalled := false; ; stalled = true {
		reason := s.overload()
		if reason == "" {
			if stalled {
				s.logger.Info("writes go on")
			}
			a.since.Store(0)
			return nil
		}
		if !stalled {
			s.stalls.Add(1)
			s.logger.Warn("writes stall", "reason", reason)
		}
		if err := s.awaitProgress(); err != nil {
			return err
		}
	}
}

func (s *store) awaitProgress() error {
	t := time.NewTimer(stallCheckPeriod)
	defer t.Stop()
	select {
	case <-s.stall.progress:
	case <-t.C:
	case <-s.g.failed:
		return s.g.err()
	case <-s.g.closing:
		return fmt.Errorf("%s engine in %s: %w", s.kind, s.dir, ErrClosed)
	}
	return nil
}

// overload is why writes have to wait, or empty.
func (s *store) overload() string {
	m := s.db.Metrics()
	// The one that takes writes counts as if it were full.
	s.g.behind.Store(
		m.MemTable.Size > hurryMemTables*s.stall.memTableBytes+s.stall.memTableBytes/2 ||
			m.Levels[0].Sublevels >= s.stall.hurrySublevels,
	)
	switch {
	case m.MemTable.Size > s.stall.maxMemTableBytes:
		return fmt.Sprintf("%d bytes in %d memtables wait to be flushed", m.MemTable.Size,
			m.MemTable.Count)
	case m.Levels[0].Sublevels >= s.stall.maxL0Sublevels:
		return fmt.Sprintf("level 0 has %d sublevels", m.Levels[0].Sublevels)
	}
	return ""
}
