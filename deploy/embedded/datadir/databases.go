package datadir

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/engine"
)

// Databases are the two stores of a core member or a data node.
type Databases struct {
	Log   *engine.Log
	State *engine.State
}

// DatabaseSizes are the sizes in bytes of memtables and block caches. 0 means the default of
// package engine.
type DatabaseSizes struct {
	LogMemTable, LogCache int64
	MemTable              int64
	// Cache is ignored if a cache is given.
	Cache int64
}

// DatabasesConfig configures the databases.
type DatabasesConfig struct {
	Logger       *slog.Logger
	MinFreeBytes uint64
	// MemberOfCore is set if the server should be a member of the core. It affects the advice in
	// errors.
	MemberOfCore bool
	Sizes        DatabaseSizes
	// Cache, if not nil, is the block cache of the state.
	Cache      *pebble.Cache
	Registerer prometheus.Registerer
	// OnFailure is called with the error when a disk fails.
	OnFailure func(error)
	// Leaving is closed when nothing may wait for space on a full disk any more, so that all users of
	// the databases can be stopped.
	Leaving <-chan struct{}
}

// OpenDatabases opens the two databases of a part of the server.
func (d *Directory) OpenDatabases(part string, c DatabasesConfig) (*Databases, error) {
	dbs := &Databases{}
	options := engine.Options{FS: d.FS, Logger: c.Logger.With("part", part),
		Registerer: c.Registerer, OnFailure: c.OnFailure, MinFreeBytes: c.MinFreeBytes,
		Leaving: c.Leaving}
	options.Dir = d.Sub(part, "log")
	options.MemTableBytes, options.CacheBytes = uint64(c.Sizes.LogMemTable), c.Sizes.LogCache
	var err error
	if dbs.Log, err = engine.OpenLog(options); err != nil {
		return nil, d.Damaged(part, c.MemberOfCore, err)
	}
	options.Dir, options.Cache = d.Sub(part, "state"), c.Cache
	options.MemTableBytes, options.CacheBytes = uint64(c.Sizes.MemTable), c.Sizes.Cache
	if dbs.State, err = engine.OpenState(options); err != nil {
		return nil, d.Damaged(part, c.MemberOfCore, errors.Join(err, dbs.Log.Close()))
	}
	return dbs, nil
}

// ErrDamaged is returned for a directory with a damaged file that it needs.
var ErrDamaged = errors.New("this server cannot start")

// Damaged adds advice to the error of a database that does not open because one of its files is
// damaged.
func (d *Directory) Damaged(part string, memberOfCore bool, err error) error {
	if !engine.IsCorruption(err) || errors.Is(err, ErrDamaged) {
		return err
	}
	next := withoutPart(part, memberOfCore, false)
	if memberOfCore {
		next = "keep the directory as it is; " + next
	}
	if part == Node {
		next = "its partitions go on where other servers hold a majority of their replicas; restore " +
			"a partition whose only replica was here from a backup or a dump; " + next
	}
	return fmt.Errorf("%s; %w from %s: %s", engine.Explain(err), ErrDamaged, d.Path, next)
}

func (d *Databases) Close() error { return errors.Join(d.State.Close(), d.Log.Close()) }
