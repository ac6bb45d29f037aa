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
	// freeSpacePeriod is how often the free space is looked at.
	freeSpacePeriod = time.Second
	// roomPeriod is how often a write that found the disk full is tried again.
	roomPeriod = 250 * time.Millisecond
	// retryDelay holds up each background write of a failed engine. Pebble repeats a failed flush
	// at once, for ever.
	retryDelay = 100 * time.Millisecond
	// walCategory is how Pebble names the WAL when it creates a file.
	walCategory vfs.DiskWriteCategory = "pebble-wal"
	// spareCategory is what is written only if there is room.
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

// walHealth is about the files of the WAL.
type walHealth struct {
	// hideWAL makes writes of the WAL succeed once the engine has failed; see the package comment.
	hideWAL bool
	// fillWAL is how many zeros a new WAL file starts with; 0 on filesystems where that is of no
	// use.
	fillWAL int64
	// names is the list of the WAL files that must be there; nil for a State.
	names          *walNames
	walSyncSeconds prometheus.Histogram
}

// freeSpace is the free space of the disk, and what waits for it.
type freeSpace struct {
	minFree uint64
	// free is the last free space that was seen, in bytes, and freeAt when it was looked at, since
	// processStart. sinceLook is how many bytes were written since.
	free      atomic.Uint64
	freeAt    atomic.Int64
	sinceLook atomic.Int64
	// low: the free space is below minFree. waiting: how many writes wait for room.
	low     atomic.Bool
	waiting atomic.Int32
	// reclaims: data was dropped while the free space was low, and compactions give back what it
	// took.
	reclaims atomic.Bool
	// told is when the log was told last that opening waits for room. Only the goroutine that opens
	// may touch it.
	told time.Time
}

// backlog is what flushes and compactions have still to do.
type backlog struct {
	// behind: flushes and compactions do not keep up with what is written. awaited: how many wait
	// for a flush.
	behind  atomic.Bool
	awaited atomic.Int32
	// unflushed is what the next flushes will write.
	unflushed unflushed
	// scratch is what compactions have written that are not over.
	scratch scratch
}

// failing is whether and how the engine has failed.
type failing struct {
	// opening: Pebble opens the database. It flushes what it finds in the WAL, repeats that for
	// ever if it fails, and hears of nothing meanwhile; and if something fails after that, it
	// forgets what it has set going in the background. So a file or name that cannot be made is a
	// failure then, and after a failure everything seems to succeed, though nothing reaches the
	// disk: the database opens, and is closed at once.
	opening atomic.Bool
	failure atomic.Pointer[error]
	// failed is closed after failure was set.
	failed chan struct{}
	// refused counts files that the disk would not create, for another reason than room.
	refused atomic.Int64
}

// ending is how waiting for room ends.
type ending struct {
	// leaving is Options.Leaving.
	leaving <-chan struct{}
	// closing is closed when Close begins: from then on nothing waits for room.
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

// err is nil, or why the engine has failed.
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

// errNoRoomAtClose is the failure of an engine that had no room when its owner began to close it.
// It is no failure of the disk.
var errNoRoomAtClose = errors.New("closed while the disk was full")

// beginClose lets go of everything that waits.
func (g *diskHealth) beginClose() { g.closeOnce.Do(func() { close(g.closing) }) }

// pause waits for d, or for the engine to close, and then returns false.
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

// awaitRoom is called with an error of a write. It returns true when the write should be tried
// again. Once the owner has begun to close, the first one without room is the end of the engine, so
// that a goroutine that waits for what comes after it goes on too.
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

// openingPeriod is how often the log is told that a database cannot be opened before there is room.
const openingPeriod = 10 * time.Second

// tellOpening says what a server waits for that does not come up because its disk is full.
func (g *diskHealth) tellOpening() {
	if !g.told.IsZero() && time.Since(g.told) < openingPeriod {
		return
	}
	g.told = time.Now()
	g.checkFreeSpace()
	g.logger.Warn("the database cannot be opened without free disk space: free some", "dir", g.dir,
		"free_bytes", g.free.Load(), "min_free_bytes", g.minFree)
}

// unlessOpening is nil while the engine is opened, else the error.
func (g *diskHealth) unlessOpening(err error) error {
	if g.opening.Load() {
		return nil
	}
	return err
}

// refuse is what a write of a failed engine gets.
func (g *diskHealth) refuse(err error) error {
	g.pause(retryDelay)
	return err
}

// checkFreeSpace looks once; it returns false if the filesystem cannot tell.
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

// noteFree notes the free space that the filesystem has told.
func (g *diskHealth) noteFree(bytes uint64) {
	g.free.Store(bytes)
	g.freeAt.Store(int64(time.Since(processStart)))
}

// processStart is from when the times of diskHealth count.
var processStart = time.Now()

// reserve is the free space that is kept: what the options say, and what a flush of the memory will
// write. The latter is as good as taken, whether or not another write comes.
func (g *diskHealth) reserve() uint64 {
	if g.minFree == 0 {
		return 0
	}
	return g.minFree + uint64(g.unflushed.bytes())
}

// looksFor is how many looks at the free space there are at least while the reserve's number of
// bytes is written: a disk can write all of it between two looks of watchFreeSpace.
const looksFor = 16

// wrote counts what is written, and looks at the free space now and then.
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

// noRoom turns an error of something spare, or of a compaction, into one that says why, if it is
// for want of room.
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

// newWALSyncSeconds measures what every acknowledged write waits for.
func newWALSyncSeconds(k kind) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:        "tidemark_engine_wal_sync_seconds",
		Help:        "Duration of the write-ahead log's fsyncs.",
		ConstLabels: prometheus.Labels{"engine": string(k)},
		Buckets:     prometheus.ExponentialBuckets(25e-6, 2, 16),
	})
}
