package table

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// standardWindow is the window of keyspaces that set none.
const standardWindow = time.Hour

// GCWindow returns how long old versions of a keyspace stay; negative, so that nothing is
// collected, while the keyspace is not known.
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

// Protected returns the timestamp at which a keyspace stays readable for its consumers; zero if no
// consumer needs it, or if the keyspace is not known, when nothing is collected.
func (t *Table) Protected(id keys.KeyspaceID) hlc.Timestamp {
	return wire.FromClusterTimestamp(t.Keyspace(id).GetProtected())
}

// ClosedLag returns how far behind the clock the leaders of a keyspace close timestamps; 0: the
// default, also while the keyspace is not known.
func (t *Table) ClosedLag(id keys.KeyspaceID) time.Duration {
	k := t.Keyspace(id)
	return time.Duration(min(k.GetClosedTimestampLagMillis(), 1<<40)) * time.Millisecond
}

// CommitWait reports whether the writes to a keyspace have commit wait; true while the keyspace is
// not known, which is always sound.
func (t *Table) CommitWait(id keys.KeyspaceID) bool {
	k := t.Keyspace(id)
	return k == nil || k.CommitWait
}

// DefaultTTL returns the lifetime of a value whose write names none; 0: the value does not expire.
func (t *Table) DefaultTTL(id keys.KeyspaceID) time.Duration {
	millis := t.Keyspace(id).GetDefaultTtlMillis()
	return time.Duration(min(millis, uint64(keys.MaxTTL.Milliseconds()))) * time.Millisecond
}
