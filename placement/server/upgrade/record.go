package upgrade

import (
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/release"
)

// Record is the stored level of the cluster, and the revision at which it was written. The revision
// is 0 if there is no record. Then the cluster is at release.Before.
type Record struct {
	*serverpb.Level
	Revision uint64
	// founding: the core is new, and its first leader has not written its level yet.
	founding bool
}

// Load reads the record.
func Load(v *store.View) (Record, error) {
	r := Record{Level: &serverpb.Level{}}
	var err error
	if r.Revision, err = meta.Load(v, []byte(meta.LevelKey), r.Level); err != nil || r.Revision != 0 {
		return r, err
	}
	claimed, err := meta.Claimed(v)
	r.founding = !claimed
	return r, err
}

// Unchanged returns the condition that the stored record is still this one.
func (r Record) Unchanged() *storepb.Compare {
	return store.ModifiedAt([]byte(meta.LevelKey), r.Revision)
}

// Allows reports whether a gate is open at the level of the cluster.
func (r Record) Allows(g release.Gate) bool { return r.active() >= g.Level }

// active and coming return the two levels.
func (r Record) active() release.Level { return release.Level(r.GetActive()) }
func (r Record) coming() release.Level {
	return max(release.Level(r.GetComing()), r.active())
}

// State returns the record in the form that is sent to servers.
func (r Record) State() *clusterpb.ClusterLevel {
	return &clusterpb.ClusterLevel{Active: uint32(r.active()), Coming: uint32(r.coming())}
}

// Founding returns the change that gives a new core its level: the highest level that its leader's
// program supports. It returns nil if that is the level of cores without a record.
func Founding(supported release.Range) []*storepb.Op {
	if supported.Max == release.Before {
		return nil
	}
	level := uint32(supported.Max)
	return []*storepb.Op{store.Put([]byte(meta.LevelKey),
		meta.Encode(&serverpb.Level{Active: level, Coming: level}))}
}
