package backup

import (
	"context"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// restore is a running restore.
type restore struct {
	*cluster
	// point is the moment to restore; nil until it has been read.
	point    *manifest.Point
	progress func(*timestamp, *clusterpb.BackupProgress)
	save     func(context.Context, []byte) error
	// chosen has the keyspaces that are restored, by their ids in the backup. names maps these ids to
	// the names in this cluster, and ids to the ids in this cluster.
	chosen map[uint32]*manifest.Keyspace
	names  map[uint32]string
	ids    map[uint32]uint32

	// mu guards the progress and the record of loaded units. No other lock is taken while it is held.
	mu      sync.Mutex
	told    clusterpb.BackupProgress
	loaded  []byte
	savedAt time.Time
}

// base returns the last backup of the chain that the restore reads.
func (r *restore) base() *manifest.Manifest { return r.point.Layers[len(r.point.Layers)-1] }

// tell reports progress.
func (r *restore) tell(step string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if step != "" {
		r.told.Step = step
	}
	p := &clusterpb.BackupProgress{Step: r.told.Step, UnitsDone: r.told.UnitsDone,
		Units: r.told.Units, Records: r.told.Records, Bytes: r.told.Bytes, Failures: r.told.Failures,
		LastFailure: r.told.LastFailure}
	var at *timestamp
	if r.point != nil {
		at = ts(r.point.At)
	}
	r.progress(at, p)
}
