package engine

import (
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// maxMemTables bounds the memory of memtables that wait to be flushed, in memtables, including
	// the one that takes writes.
	maxMemTables = 4
	// Writes stop when L0 has this many sublevels, all of which a read must search: late writes are
	// better than unbounded reads.
	maxL0SublevelsLog   = 64
	maxL0SublevelsState = 32
	// stallCheckPeriod is how often a stalled write looks again if nothing tells it to.
	stallCheckPeriod = time.Second
)

// stall delays writes while flushes and compactions cannot keep up. Pebble would delay them inside
// its commit, with locks held, and never release them if the disk fails at that moment. Here they
// wait before they enter Pebble.
//
// The check takes Pebble's lock, so it is made once per quarter of a memtable: memory is bounded by
// maxMemTables memtables and that quarter.
type stall struct {
	// every is the number of bytes between two checks; since counts the bytes since the last one.
	every int64
	since atomic.Int64

	memTableBytes, maxMemTableBytes uint64
	maxL0Sublevels, hurrySublevels  int32

	// gate is held by the goroutine that checks, or waits. Capacity 1; the others wait for gate.
	gate chan struct{}
	// progress has a token when a flush or a compaction has ended. Capacity 1.
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
		return nil // another goroutine has checked meanwhile
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

// overload returns why writes have to wait, or "".
func (s *store) overload() string {
	m := s.db.Metrics()
	// The memtable that takes writes counts as full.
	s.g.flushesBehind.Store(
		m.MemTable.Size > hurryMemTables*s.stall.memTableBytes+s.stall.memTableBytes/2)
	s.g.compactionsBehind.Store(m.Levels[0].Sublevels >= s.stall.hurrySublevels)
	switch {
	case m.MemTable.Size > s.stall.maxMemTableBytes:
		return fmt.Sprintf("%d bytes in %d memtables wait to be flushed", m.MemTable.Size,
			m.MemTable.Count)
	case m.Levels[0].Sublevels >= s.stall.maxL0Sublevels:
		return fmt.Sprintf("level 0 has %d sublevels", m.Levels[0].Sublevels)
	}
	return ""
}
