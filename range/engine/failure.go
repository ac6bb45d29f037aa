package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	// freeSpacePeriod is how often the free space is checked.
	freeSpacePeriod = time.Second
	// roomPeriod is how often a write that found the disk full is tried again.
	roomPeriod = 250 * time.Millisecond
	// retryDelay delays each background write of a failed engine, because Pebble repeats a failed
	// flush at once, for ever.
	retryDelay = 100 * time.Millisecond
	// walCategory is Pebble's name for WAL files in NewFile calls.
	walCategory vfs.DiskWriteCategory = "pebble-wal"
	// spareCategory is the category of files that are written only if there is space.
	spareCategory vfs.DiskWriteCategory = "tidemark-spare"
)

// diskHealth is what an engine knows about the health of its disk. healthFS reports to it.
type diskHealth struct {
	inner  vfs.FS
	dir    string
	logger *slog.Logger
	walHealth
	freeSpace
	backlog
	failing
	ending
}

// walHealth holds the state of the WAL files.
type walHealth struct {
	// hideWAL makes writes of the WAL succeed once the engine has failed; see the package comment.
	hideWAL bool
	// fillWAL is how many zeros a new WAL file starts with; 0 on filesystems where that is of no
	// use.
	fillWAL int64
	// names lists the WAL files that must exist; nil for a State.
	names          *walNames
	walSyncSeconds prometheus.Histogram
}

// freeSpace is the free space of the disk, and the state of those that wait for it.
type freeSpace struct {
	minFree uint64
	// free is the free space last seen, in bytes, and freeAt the time of that check, since
	// processStart. sinceLook counts the bytes written since.
	free      atomic.Uint64
	freeAt    atomic.Int64
	sinceLook atomic.Int64
	// low is set while the free space is below minFree. waiting counts the writes that wait for
	// space.
	low     atomic.Bool
	waiting atomic.Int32
	// reclaims is set if data was removed while the free space was low, so that compactions free
	// its space.
	reclaims atomic.Bool
	// told is when the log last said that opening waits for space. Only the goroutine that opens
	// may touch it.
	told time.Time
}

// backlog is the work that flushes and compactions still have to do.
type backlog struct {
	// flushesBehind is set while flushes do not keep up with the writes, and compactionsBehind while
	// compactions do not. awaited counts the callers that wait for a flush.
	flushesBehind, compactionsBehind atomic.Bool
	awaited                          atomic.Int32
	// unflushed counts the bytes that the next flushes will write.
	unflushed unflushed
	// scratch counts the bytes that unfinished compactions have written.
	scratch scratch
}

// failing holds whether and how the engine has failed.
type failing struct {
	// opening is set while Pebble opens the database. In that time Pebble flushes what it finds in
	// the WAL, repeats that for ever if it fails, and cannot be told of errors; and if something
	// else fails afterwards, it loses track of its background work. So while opening is set, a file
	// or name that cannot be made marks the engine failed, and after a failure every operation
	// seems to succeed, though nothing reaches the disk: the database opens, and is closed at once.
	opening atomic.Bool
	failure atomic.Pointer[error]
	// failed is closed after failure was set.
	failed chan struct{}
	// refused counts files that could not be created, for other reasons than lack of space.
	refused atomic.Int64
}

// ending holds the channels that end a wait for space.
type ending struct {
	// leaving is Options.Leaving.
	leaving <-chan struct{}
	// closing is closed when Close begins: from then on nothing waits for space.
	closing   chan struct{}
	closeOnce sync.Once
}

func newDiskHealth(o Options, k kind) *diskHealth {
	return &diskHealth{
		inner:  o.FS,
		dir:    o.Dir,
		logger: o.Logger,
		walHealth: walHealth{hideWAL: k == kindLog, fillWAL: fillSize(o, k),
			walSyncSeconds: newWALSyncSeconds(k)},
		freeSpace: freeSpace{minFree: o.MinFreeBytes},
		failing:   failing{failed: make(chan struct{})},
		ending:    ending{leaving: o.Leaving, closing: make(chan struct{})},
	}
}

// err returns why the engine has failed, or nil.
func (g *diskHealth) err() error {
	if p := g.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// fail marks the engine failed. Only the first failure counts.
func (g *diskHealth) fail(err error) {
	err = fmt.Errorf("%w: %s: %w; check the disk, then restart", ErrFailed, g.dir, err)
	if !g.failure.CompareAndSwap(nil, &err) {
		return
	}
	if errors.Is(err, errNoRoomAtClose) {
		g.logger.Warn("closed with a full disk: what waited for free disk space was neither "+
			"written nor acknowledged", "dir", g.dir)
	} else {
		g.logger.Error("disk failed", "error", err)
	}
	close(g.failed)
}

// full reports whether writes should be refused.
func (g *diskHealth) full() bool { return g.low.Load() || g.waiting.Load() > 0 }

// errNoRoomAtClose is the failure of an engine that had no disk space when its owner began to close
// it. It is no failure of the disk.
var errNoRoomAtClose = errors.New("closed while the disk was full")

// beginClose ends every wait for space.
func (g *diskHealth) beginClose() { g.closeOnce.Do(func() { close(g.closing) }) }

// pause waits for d. It returns false if the engine closes before.
func (g *diskHealth) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-g.closing:
		return false
	}
}

// awaitRoom takes the error of a write, and returns true when the write should be tried again. Once
// the owner has begun to close, the first write without space fails the engine, so that goroutines
// that wait for later writes are released too.
func (g *diskHealth) awaitRoom(err error) bool {
	if !isNoSpace(err) {
		return false
	}
	if g.waiting.Add(1) == 1 && !g.low.Load() {
		g.logger.Warn("disk full: writes wait for free disk space", "dir", g.dir)
	}
	if g.opening.Load() {
		g.tellOpening()
	}
	defer g.waiting.Add(-1)
	select {
	case <-g.leaving:
	default:
		t := time.NewTimer(roomPeriod)
		defer t.Stop()
		select {
		case <-t.C:
			return true
		case <-g.leaving:
		case <-g.closing:
		}
	}
	g.fail(fmt.Errorf("%w: %w", errNoRoomAtClose, err))
	return false
}

// openingPeriod is how often the log says that a database cannot be opened for lack of space.
const openingPeriod = 10 * time.Second

// tellOpening logs that the database cannot be opened because the disk is full.
func (g *diskHealth) tellOpening() {
	if !g.told.IsZero() && time.Since(g.told) < openingPeriod {
		return
	}
	g.told = time.Now()
	g.checkFreeSpace()
	g.logger.Warn("the database cannot be opened without free disk space: free some", "dir", g.dir,
		"free_bytes", g.free.Load(), "min_free_bytes", g.minFree)
}

// unlessOpening returns nil while the engine is being opened, else the error.
func (g *diskHealth) unlessOpening(err error) error {
	if g.opening.Load() {
		return nil
	}
	return err
}

// refuse returns the error of a write to a failed engine.
func (g *diskHealth) refuse(err error) error {
	g.pause(retryDelay)
	return err
}

// checkFreeSpace checks the free space once; it returns false if the filesystem cannot tell.
func (g *diskHealth) checkFreeSpace() bool {
	usage, err := g.inner.GetDiskUsage(g.dir)
	if err != nil {
		return false
	}
	g.noteFree(usage.AvailBytes)
	low := usage.AvailBytes < g.reserve()
	if !low {
		g.reclaims.Store(false)
	}
	if g.low.Swap(low) != low {
		if low {
			g.logger.Warn("disk almost full: writes are refused", "dir", g.dir, "free_bytes",
				usage.AvailBytes, "min_free_bytes", g.minFree)
		} else {
			g.logger.Info("disk has free space again: writes are taken", "dir", g.dir, "free_bytes",
				usage.AvailBytes)
		}
	}
	return true
}

// noteFree stores the free space that the filesystem has reported.
func (g *diskHealth) noteFree(bytes uint64) {
	g.free.Store(bytes)
	g.freeAt.Store(int64(time.Since(processStart)))
}

// processStart is the origin of diskHealth's times.
var processStart = time.Now()

// reserve returns the free space that is kept: the configured minimum, and what a flush of the
// memtables will write. The latter is as good as taken.
func (g *diskHealth) reserve() uint64 {
	if g.minFree == 0 {
		return 0
	}
	return g.minFree + uint64(g.unflushed.bytes())
}

// looksFor is the least number of checks while as many bytes as the reserve has are written, since
// a disk can write all of them between two checks of watchFreeSpace.
const looksFor = 16

// wrote counts written bytes, and checks the free space now and then.
func (g *diskHealth) wrote(n int) {
	if g.minFree == 0 || g.sinceLook.Add(int64(n)) < int64(g.minFree/looksFor) {
		return
	}
	g.sinceLook.Store(0)
	g.checkFreeSpace()
}

// watchFreeSpace runs until the engine closes.
func (g *diskHealth) watchFreeSpace() {
	t := time.NewTicker(freeSpacePeriod)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			g.checkFreeSpace()
		case <-g.closing:
			return
		}
	}
}

// noRoom explains an error of a spare table or a compaction if its cause is lack of space.
func noRoom(category vfs.DiskWriteCategory, err error) error {
	if category != spareCategory && category != compactionCategory || !isNoSpace(err) {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrNoRoom, err)
}

func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// newWALSyncSeconds makes the histogram of the time of WAL syncs, for which every acknowledged
// write waits.
func newWALSyncSeconds(k kind) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:        "tidemark_engine_wal_sync_seconds",
		Help:        "Duration of the write-ahead log's fsyncs.",
		ConstLabels: prometheus.Labels{"engine": string(k)},
		Buckets:     prometheus.ExponentialBuckets(25e-6, 2, 16),
	})
}
