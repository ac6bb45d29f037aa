package embedded

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/engine"
)

// databases are the two stores of a core member or a data node.
type databases struct {
	log   *engine.Log
	state *engine.State
}

// openDatabases opens the stores below a directory of the server. onFailure is told when a disk fails.
func openDatabases(c *ServerConfig, d *directory, part string, memTable uint64, cache *pebble.Cache, registerer prometheus.Registerer, onFailure func(error)) (*databases, error) {
	dbs := &databases{}
	options := engine.Options{FS: c.FS, Logger: c.Logger.With("part", part), Registerer: registerer, OnFailure: onFailure, MinFreeBytes: c.MinFreeBytes}
	options.Dir, options.MemTableBytes = d.sub(part, "log"), c.LogMemTableBytes
	var err error
	if dbs.log, err = engine.OpenLog(options); err != nil {
		return nil, err
	}
	options.Dir, options.MemTableBytes, options.Cache = d.sub(part, "state"), memTable, cache
	if dbs.state, err = engine.OpenState(options); err != nil {
		return nil, errors.Join(err, dbs.log.Close())
	}
	return dbs, nil
}

func (d *databases) close() error { return errors.Join(d.state.Close(), d.log.Close()) }
