package embedded

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/engine"
)

// databases are the two stores of a core member or a data node.
type databases struct {
	log   *engine.Log
	state *engine.State
}

// databaseSizes are the sizes in bytes of memtables and block caches. 0 is a default of package
// engine.
type databaseSizes struct {
	logMemTable, logCache int64
	memTable              int64
	// cache is of no use with a cache that is given.
	cache int64
}

// openDatabases opens the stores below a directory of the server. onFailure is told when a disk
// fails. Once leaving is closed nothing waits for room on a full disk, so that all that use the
// stores can be stopped.
func openDatabases(
	c *ServerConfig,
	d *directory,
	part string,
	sizes databaseSizes,
	cache *pebble.Cache,
	registerer prometheus.Registerer,
	onFailure func(error),
	leaving <-chan struct{},
) (*databases, error) {
	dbs := &databases{}
	options := engine.Options{FS: c.FS, Logger: c.Logger.With("part", part), Registerer: registerer,
		OnFailure: onFailure, MinFreeBytes: c.MinFreeBytes,
		Leaving: leaving}
	options.Dir = d.sub(part, "log")
	options.MemTableBytes, options.CacheBytes = uint64(sizes.logMemTable), sizes.logCache
	var err error
	if dbs.log, err = engine.OpenLog(options); err != nil {
		return nil, damaged(c, d, part, err)
	}
	options.Dir, options.Cache = d.sub(part, "state"), cache
	options.MemTableBytes, options.CacheBytes = uint64(sizes.memTable), sizes.cache
	if dbs.state, err = engine.OpenState(options); err != nil {
		return nil, damaged(c, d, part, errors.Join(err, dbs.log.Close()))
	}
	return dbs, nil
}

// errDamaged is returned for a directory with a damaged file that it cannot do without.
var errDamaged = errors.New("this server cannot start")

// damaged says what can be done if a database does not open because one of its files is damaged.
func damaged(c *ServerConfig, d *directory, part string, err error) error {
	if !engine.IsCorruption(err) || errors.Is(err, errDamaged) {
		return err
	}
	text := "its partitions go on where other servers hold a majority of their replicas; what " +
		"had its only replica here has to come from a dump"
	if part == "core" {
		text = "the core goes on with a majority of its other members"
	}
	next := "put the directory aside and start with an empty one: the server joins as a new " +
		"node, and serves keyspaces that are created from then on"
	if c.has(RoleCore) {
		next = "keep the directory as it is: a member of the core cannot be replaced yet"
	}
	return fmt.Errorf("%s; %w from %s: %s; %s", engine.Explain(err), errDamaged, d.path, text, next)
}

func (d *databases) close() error { return errors.Join(d.state.Close(), d.log.Close()) }
