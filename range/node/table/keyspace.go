package table

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// standardWindow is for keyspaces that do not say how long old versions stay.
const standardWindow = time.Hour

// GCWindow is how long old versions of a keyspace stay; negative, for nothing is collected, while
// the keyspace is not known.
func (t *Table) GCWindow(id keys.KeyspaceID) time.Duration {
	k := t.Keyspace(id)
	switch {
	case k == nil:
		return -1
	case k.GcWindowSeconds == 0:
		return standardWindow
	}
	return time.Duration(min(k.GcWindowSeconds, uint64(1<<62)/uint64(time.Second))) * time.Second
}

// Protected is at which timestamp a keyspace stays readable for its consumers; zero: none needs it,
// or the keyspace is not known, and nothing is collected.
func (t *Table) Protected(id keys.KeyspaceID) hlc.Timestamp {
	return wire.FromClusterTimestamp(t.Keyspace(id).GetProtected())
}

// ClosedLag is how far behind the clock the leaders of a keyspace close timestamps; 0: the default,
// also while the keyspace is not known.
func (t *Table) ClosedLag(id keys.KeyspaceID) time.Duration {
	k := t.Keyspace(id)
	return time.Duration(min(k.GetClosedTimestampLagMillis(), 1<<40)) * time.Millisecond
}

// CommitWait says whether the writes to a keyspace have commit wait; as long as the keyspace is not
// known they do, which is always sound.
func (t *Table) CommitWait(id keys.KeyspaceID) bool {
	k := t.Keyspace(id)
	return k == nil || k.CommitWait
}

// DefaultTTL is how long a value of a keyspace lives whose write does not say so; 0: it does not
// expire.
func (t *Table) DefaultTTL(id keys.KeyspaceID) time.Duration {
	millis := t.Keyspace(id).GetDefaultTtlMillis()
	return time.Duration(min(millis, uint64(keys.MaxTTL.Milliseconds()))) * time.Millisecond
}
