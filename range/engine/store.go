package engine

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// store is the common part of Log and State: opening, failing and closing.
type store struct {
	kind   kind
	dir    string
	logger *slog.Logger
	g      *diskHealth
	fs     healthFS
	db     *pebble.DB
	// pebbleOptions are as they were given to Pebble, defaults included.
	pebbleOptions *pebble.Options
	lock          *pebble.Lock
	metrics       *collector
	// corruptions counts the damaged files that reads found.
	corruptions atomic.Int64
	// stalls counts how often writes had to wait for flushes or compactions.
	stalls atomic.Int64

	stall       stall
	ingestion   ingestion
	compactions *compactions
	running
}

// running holds what a store has started and must stop.
type running struct {
	// flushed wakes the event goroutine after a flush. Capacity 1: several flushes before it wakes
	// are one event.
	flushed chan struct{}
	// stop ends the event goroutine.
	stop       chan struct{}
	goroutines sync.WaitGroup
	closed     sync.Once
	closeErr   error
	// ended is set when Close has begun: calls are then refused, because Pebble would panic.
	ended atomic.Bool
}

// openStore opens or creates the directory. On an error it leaves nothing behind, locks included.
func openStore(o Options, k kind, makeOptions func(Options) *pebble.Options) (_ *store, err error) {
	if err := o.ensureDefaults(k); err != nil {
		return nil, err
	}
	s := &store{
		kind:    k,
		dir:     o.Dir,
		logger:  o.Logger,
		g:       newDiskHealth(o, k),
		running: running{flushed: make(chan struct{}, 1), stop: make(chan struct{})},
	}
	s.stall.init(o, k)
	s.fs = healthFS{FS: o.FS, g: s.g}
	defer func() {
		if err != nil {
			s.release()
		}
	}()

	if err := makeDir(s.fs, o.Dir); err != nil {
		return nil, fmt.Errorf("create directory %s: %w", o.Dir, err)
	}
	if s.lock, err = pebble.LockDirectory(o.Dir, s.fs); err != nil {
		if isLocked(err) {
			return nil, fmt.Errorf("%w: %s is open in another process, or twice in this one (%v)",
				ErrLocked, o.Dir, err)
		}
		return nil, fmt.Errorf("lock directory %s: %w", o.Dir, err)
	}
	if err := checkVersion(s.fs, o.Dir, k); err != nil {
		return nil, err
	}

	p := makeOptions(o)
	p.FS = s.fs
	p.Lock = s.lock
	p.Logger = pebbleLogger{s.g}
	s.compactions = newCompactions(s.g)
	p.Experimental.CompactionScheduler = s.compactions
	p.EventListener = s.listener()
	// EnsureDefaults is called here, so that tables for ingestion are written with the same
	// options.
	p.EnsureDefaults()
	s.pebbleOptions = p
	s.g.checkFreeSpace()
	if err := verify(s.fs, o.Dir, k); err != nil {
		return nil, openError(o.Dir, k, err)
	}
	if k == kindLog {
		if s.g.names, err = openWALNames(s.fs, o.Dir, newestOptions(s.fs, o.Dir)); err != nil {
			return nil, openError(o.Dir, k, err)
		}
	}
	s.g.opening.Store(true)
	s.db, err = pebble.Open(o.Dir, p)
	if failure := s.g.err(); failure != nil {
		return nil, fmt.Errorf("open the %s database: %w", k, failure)
	}
	s.g.opening.Store(false)
	if err != nil {
		return nil, openError(o.Dir, k, err)
	}
	if o.Registerer != nil {
		s.metrics = newCollector(s, o.Registerer)
		if err := o.Registerer.Register(s.metrics); err != nil {
			s.metrics = nil
			return nil, fmt.Errorf("open %s engine in %s: register metrics: %w", k, o.Dir, err)
		}
	}
	s.goroutines.Go(func() { s.events(o) })
	if s.g.checkFreeSpace() {
		s.goroutines.Go(s.g.watchFreeSpace)
	}
	return s, nil
}

// openError explains an error of Pebble's Open.
func openError(dir string, k kind, err error) error {
	// Pebble has no error value for a table that is shorter than the manifest says, or missing.
	if !IsCorruption(err) && (strings.Contains(err.Error(), "object size mismatch") ||
		isNotExist(err)) {
		err = fmt.Errorf("%w: %w", errDamaged, err)
	}
	if IsCorruption(err) && !errors.Is(err, errDamaged) {
		return fmt.Errorf("open the %s database: a file in %s is damaged: %w", k, dir, err)
	}
	return fmt.Errorf("open the %s database in %s: %w", k, dir, err)
}

// isLocked reports whether an error says that the lock is held, not that it cannot be taken for
// other reasons.
func isLocked(err error) bool {
	return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) ||
		err.Error() == "lock held by current process"
}

// listener handles Pebble's events. Pebble calls it with locks held, so it must not block.
func (s *store) listener() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			// A compaction that failed for lack of space is tried again. So is one whose files are
			// gone because a partition was removed, or a snapshot installed.
			if s.g.err() == nil && !errors.Is(err, ErrNoRoom) &&
				!errors.Is(err, pebble.ErrCancelledCompaction) {
				s.logger.Error("background error", "error", quoted(err))
			}
		},
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			// The read that found the damage gets the error. Without a listener Pebble would end
			// the process.
			s.corruptions.Add(1)
			s.logger.Error("corrupt file", "path", info.Path, "error", quoted(info.Details))
		},
		FlushBegin: func(info pebble.FlushInfo) { s.g.unflushed.begin(info.InputBytes) },
		FlushEnd: func(info pebble.FlushInfo) {
			if info.Err != nil && s.g.err() != nil {
				return
			}
			if info.Err == nil {
				s.g.unflushed.end()
				s.compactions.flushed()
			}
			s.stall.kick()
			select {
			case s.flushed <- struct{}{}:
			default:
			}
		},
		TableIngested: s.ingestion.ingested,
		CompactionEnd: func(info pebble.CompactionInfo) {
			s.compactions.ended(info.Err)
			s.compacted(info)
			s.stall.kick()
		},
	}
}

// events calls the owner's callbacks until the engine closes.
func (s *store) events(o Options) {
	failed := s.g.failed
	for {
		select {
		case <-s.flushed:
			if o.FlushEnd != nil {
				o.FlushEnd()
			}
		case <-failed:
			failed = nil
			if err := s.g.err(); o.OnFailure != nil && !errors.Is(err, errNoRoomAtClose) {
				o.OnFailure(err)
			}
		case <-s.stop:
			return
		}
	}
}

// check returns nil if the engine can be used.
func (s *store) check() error {
	if err := s.g.err(); err != nil {
		return err
	}
	if s.ended.Load() {
		return fmt.Errorf("%s engine in %s: %w", s.kind, s.dir, ErrClosed)
	}
	return nil
}

// explain returns the engine's failure, if there is one, in place of an error that it caused.
func (s *store) explain(err error) error {
	if failure := s.g.err(); failure != nil {
		return failure
	}
	return err
}

// Full reports whether the disk is full, or nearly so (Options.MinFreeBytes). Code that takes new
// writes should then refuse them.
func (s *store) Full() bool { return s.g.full() }

// Waits reports whether a write waits because the disk has no space left.
func (s *store) Waits() bool { return s.g.waiting.Load() > 0 }

// MinFreeBytes is Options.MinFreeBytes.
func (s *store) MinFreeBytes() uint64 { return s.g.minFree }

// Err is nil, or ErrFailed with its reason.
func (s *store) Err() error { return s.g.err() }

// Dir returns the engine's directory.
func (s *store) Dir() string { return s.dir }

// FreeBytes returns the free space of the disk as last seen; 0 if the filesystem cannot tell.
func (s *store) FreeBytes() uint64 { return s.g.free.Load() }

// FreeAt returns when FreeBytes was seen, to be compared with that of another store of the process.
func (s *store) FreeAt() time.Duration { return time.Duration(s.g.freeAt.Load()) }

// UnflushedBytes estimates how many committed bytes are in no table yet: flushes will write as
// much.
func (s *store) UnflushedBytes() int64 { return s.g.unflushed.bytes() }

// UsedBytes returns how many bytes the engine's files take on disk.
func (s *store) UsedBytes() uint64 { return s.db.Metrics().DiskSpaceUsage() }

// Metrics returns Pebble's own metrics.
func (s *store) Metrics() *pebble.Metrics { return s.db.Metrics() }

// Get reads one key. The value is valid until the closer is closed. pebble.ErrNotFound is returned
// unwrapped.
func (s *store) Get(key []byte) ([]byte, io.Closer, error) {
	if err := s.check(); err != nil {
		return nil, nil, err
	}
	return s.db.Get(key)
}

// NewIter returns an iterator over the present contents, without later commits. Close it.
func (s *store) NewIter(o *pebble.IterOptions) (*pebble.Iterator, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	return s.db.NewIter(o)
}

// Flush writes all earlier commits to tables, and returns when the tables are durable.
func (s *store) Flush() error { return s.flushInTurn(nil) }

// flushInTurn is Flush; turn, if not nil, is held while the flush begins.
func (s *store) flushInTurn(turn chan struct{}) error {
	s.g.awaited.Add(1)
	defer s.g.awaited.Add(-1)
	done, err := s.startFlush(turn)
	if err != nil {
		return err
	}
	select {
	case <-done:
	case <-s.g.failed: // it would be tried again for ever
	}
	return s.g.err()
}

// AsyncFlush starts a Flush; Options.FlushEnd tells when it is done.
func (s *store) AsyncFlush() error {
	_, err := s.startFlush(nil)
	return err
}

// startFlush starts a flush; turn, if not nil, is held meanwhile.
func (s *store) startFlush(turn chan struct{}) (done <-chan struct{}, err error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	if turn != nil {
		turn <- struct{}{}
		defer func() { <-turn }()
	}
	if done, err = s.db.AsyncFlush(); err != nil {
		return nil, fmt.Errorf("flush %s engine in %s: %w", s.kind, s.dir, err)
	}
	return done, nil
}

// close shuts down. All iterators, snapshots and batches must be closed, and no call may run.
func (s *store) close(beforeClose func()) error {
	s.closed.Do(func() {
		if s.g.err() == nil && beforeClose != nil {
			beforeClose()
		}
		s.ended.Store(true)
		s.g.beginClose()
		close(s.stop)
		s.goroutines.Wait()
		s.closeErr = s.release()
	})
	return s.closeErr
}

// release releases what openStore has taken.
func (s *store) release() error {
	s.g.beginClose()
	if s.metrics != nil {
		s.metrics.close()
	}
	var err error
	switch {
	case s.db != nil:
		err = s.db.Close()
	case s.compactions != nil:
		s.compactions.Unregister() // Pebble does that for a database that it has opened.
	}
	if s.lock != nil {
		if lockErr := s.lock.Close(); err == nil {
			err = lockErr
		}
	}
	s.g.names.close()
	// Errors after a failure are consequences of it.
	if err != nil && s.g.err() == nil {
		return fmt.Errorf("close %s engine in %s: %w", s.kind, s.dir, err)
	}
	return nil
}

// IsCorruption reports whether an error says that stored data is damaged.
func IsCorruption(err error) bool {
	return err != nil && (errors.Is(err, errDamaged) || pebble.IsCorruptionError(err))
}

// compacted notes how a compaction ended. The tables of a failed one are removed later.
func (s *store) compacted(info pebble.CompactionInfo) {
	if info.Err != nil {
		return
	}
	for _, table := range info.Output.Tables {
		s.g.scratch.end(fmt.Sprintf("%s.sst", table.FileNum))
	}
}

// ScratchBytes estimates how many bytes of the disk unfinished compactions have taken. They are
// free again when the compactions end, or when space is short.
func (s *store) ScratchBytes() int64 { return s.g.scratch.total.Load() }
