package upgrade

import (
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/release"
)

// Record is the level of the cluster as it is stored, and the revision at which it was written: 0
// if there is none, and then the cluster is at release.Before.
type Record struct {
	*serverpb.Level
	Revision uint64
}

// Load reads the record.
func Load(v *store.View) (Record, error) {
	r := Record{Level: &serverpb.Level{}}
	var err error
	r.Revision, err = meta.Load(v, []byte(meta.LevelKey), r.Level)
	return r, err
}

// Unchanged is the condition that the record is still this one.
func (r Record) Unchanged() *storepb.Compare {
	return store.ModifiedAt([]byte(meta.LevelKey), r.Revision)
}

// active and coming are the two levels.
func (r Record) active() release.Level { return release.Level(r.GetActive()) }
func (r Record) coming() release.Level {
	return max(release.Level(r.GetComing()), r.active())
}

// State is the record as servers are told of it.
func (r Record) State() *clusterpb.ClusterLevel {
	return &clusterpb.ClusterLevel{Active: uint32(r.active()), Coming: uint32(r.coming())}
}

// Founding is the change that gives a new core its level: the highest that its leader's program
// supports. nil: it is the level of cores without a record.
func Founding(supported release.Range) []*storepb.Op {
	if supported.Max == release.Before {
		return nil
	}
	level := uint32(supported.Max)
	return []*storepb.Op{store.Put([]byte(meta.LevelKey),
		meta.Encode(&serverpb.Level{Active: level, Coming: level}))}
}
