package engine

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
)

var (
	// ErrFailed is returned by every call after the disk failed. It wraps the cause.
	ErrFailed = errors.New("the storage engine has failed")
	// ErrClosed is returned by calls after Close.
	ErrClosed = errors.New("the storage engine is closed")
	// ErrNoRoom is returned by operations that do not wait while the disk is full.
	ErrNoRoom = errors.New("no free disk space")
	// ErrLocked is returned when the directory is open already, in this process or in another.
	ErrLocked = errors.New("the directory is in use")
	// ErrVersion is returned when the directory was written by a newer version.
	ErrVersion = errors.New("the directory was written by a newer version")
	// ErrWrongKind is returned when the directory holds the other kind of engine, or a foreign
	// database.
	ErrWrongKind = errors.New("the directory holds something else")
)

// errDamaged is wrapped by errors that prove a file to be damaged.
var errDamaged = errors.New("damaged file")

// kind tells the two engines apart, on disk and in messages.
type kind string

const (
	kindLog   kind = "log"
	kindState kind = "state"
)

// Options configure a Log or a State. FS and Dir must be set; the rest has defaults.
type Options struct {
	// FS is the filesystem; vfs.Default is the operating system's.
	FS vfs.FS
	// Dir is created if need be.
	Dir string

	// Cache, if set, is shared between engines; the engine takes its own reference. Pebble counts
	// memtables against it, so it must be larger than the memtables of all its engines, by the
	// space wanted for blocks. If nil, the engine makes its own cache, by CacheBytes.
	Cache *pebble.Cache
	// CacheBytes is how much of the engine's own cache is left for blocks while two memtables are
	// full. Default 64 MiB for a State, 8 MiB for a Log.
	CacheBytes int64
	// MemTableBytes is the size at which a memtable is flushed. Default 64 MiB for a State, 16 MiB
	// for a Log.
	MemTableBytes uint64

	// Logger gets Pebble's messages, and the engine's own. Default: they are dropped.
	Logger *slog.Logger
	// Registerer gets the metrics, which are labelled engine="log" or "state". Nil: no metrics. An
	// application with several engines of a kind wraps it with a label that tells them apart.
	Registerer prometheus.Registerer

	// OnFailure is called once if the disk fails, from the engine's event goroutine. It must not
	// call Close from there.
	OnFailure func(error)
	// Leaving, if not nil, is closed by the owner when it is about to close the engine, or to give
	// up opening it, and must wait for its users first. From then on nothing waits for space on the
	// disk. While there is space, nothing changes. The first write that finds no space fails the
	// engine, as if the process had been killed at that moment, but OnFailure is not called: all
	// calls return ErrFailed, and nothing is acknowledged any more.
	Leaving <-chan struct{}
	// FlushEnd is called from the event goroutine after a flush has made more of the engine
	// durable. Calls do not overlap, and one call may stand for several flushes. It may read the
	// engine, and must not call Close.
	FlushEnd func()

	// MinFreeBytes is the free space below which Full reports true. 0: Full reports true only when
	// the disk has no space at all.
	MinFreeBytes uint64
}

const (
	defaultStateCacheBytes    = 64 << 20
	defaultLogCacheBytes      = 8 << 20
	defaultStateMemTableBytes = 64 << 20
	defaultLogMemTableBytes   = 16 << 20
)

// ensureDefaults fills in unset options for one kind of engine.
func (o *Options) ensureDefaults(k kind) error {
	if o.FS == nil || o.Dir == "" {
		return fmt.Errorf("open %s engine: FS and Dir must be set", k)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = o.Logger.With("engine", string(k))
	cacheBytes, memTableBytes := int64(defaultStateCacheBytes), uint64(defaultStateMemTableBytes)
	if k == kindLog {
		cacheBytes, memTableBytes = defaultLogCacheBytes, defaultLogMemTableBytes
	}
	if o.CacheBytes <= 0 {
		o.CacheBytes = cacheBytes
	}
	if o.MemTableBytes == 0 {
		o.MemTableBytes = memTableBytes
	}
	return nil
}
