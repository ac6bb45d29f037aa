package node

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/txn"
)

// gcWindow is how long old versions of a keyspace stay; negative, for nothing is collected, while
// the keyspace is not known.
func (n *Node) gcWindow(id keys.KeyspaceID) time.Duration {
	k := n.tables.load().Keyspace(id)
	switch {
	case k == nil:
		return -1
	case k.GcWindowSeconds == 0:
		return n.config.GCWindow
	}
	return time.Duration(min(k.GcWindowSeconds, uint64(1<<62)/uint64(time.Second))) * time.Second
}

// protected is at which timestamp a keyspace stays readable for its consumers; zero: none needs it,
// or the keyspace is not known, and nothing is collected.
func (n *Node) protected(id keys.KeyspaceID) hlc.Timestamp {
	return rpc.FromClusterTimestamp(n.tables.load().Keyspace(id).GetProtected())
}

// closedLag is how far behind the clock the leaders of a keyspace close timestamps; 0: the default,
// also while the keyspace is not known.
func (n *Node) closedLag(id keys.KeyspaceID) time.Duration {
	k := n.tables.load().Keyspace(id)
	return time.Duration(min(k.GetClosedTimestampLagMillis(), 1<<40)) * time.Millisecond
}

// transactionLimits are how long a transaction may hold locks of a keyspace; none as long as the
// keyspace is not known.
func (n *Node) transactionLimits(id keys.KeyspaceID) txn.Limits {
	return txn.LimitsOf(n.tables.load().Keyspace(id))
}

// commitWait says whether the writes to a keyspace have commit wait; as long as the keyspace is not
// known they do, which is always sound.
func (n *Node) commitWait(id keys.KeyspaceID) bool {
	k := n.tables.load().Keyspace(id)
	return k == nil || k.CommitWait
}

// defaultTTL is how long a value of a keyspace lives whose write does not say so; 0: it does not
// expire.
func (n *Node) defaultTTL(id keys.KeyspaceID) time.Duration {
	millis := n.tables.load().Keyspace(id).GetDefaultTtlMillis()
	return time.Duration(min(millis, uint64(keys.MaxTTL.Milliseconds()))) * time.Millisecond
}

// setKeyspace hands a keyspace's settings to a replica.
func (n *Node) setKeyspace(r *replica.Replica, id keys.KeyspaceID) {
	// In this order: with a window, what is protected is known.
	r.GC().SetProtected(n.protected(id))
	r.GC().SetWindow(n.gcWindow(id))
	r.SetCommitWait(n.commitWait(id))
	r.SetDefaultTTL(n.defaultTTL(id))
	r.SetClosedLag(n.closedLag(id))
}
