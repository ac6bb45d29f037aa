package replica

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/txn"
)

// A transaction's start decides which goes first in conflicts, and how long it may go on; and it is
// the client that says when it was. So it is looked at wherever it could have an effect: where
// locks are taken, where a commit in one phase may wait for locks, and where a push would abort
// another transaction. What is ahead of every clock is refused as any timestamp is, after which the
// client tries again; what is longer ago than the keyspace allows is refused as aborted, so that
// the client begins anew.
//
// The limits of an open transaction are enforced at its record: package txn.

// isFuture says that a start is further ahead than any clock of the cluster can be. Unlike
// checkAhead it leaves the clock alone: nothing has to be above a start.
func (e *evaluation) isFuture(start hlc.Timestamp) bool {
	clock := e.r.node.Clock
	return !start.LessEq(e.Clock) && start.Wall-clock.Physical() > 2*int64(clock.MaxAhead())
}

// limitsOf are those of a keyspace; none if they are not known.
func (n *Node) limitsOf(id keys.KeyspaceID) txn.Limits {
	if n.TransactionLimits == nil || id == 0 {
		return txn.Limits{}
	}
	return n.TransactionLimits(id)
}

func (r *Replica) ownLimits() txn.Limits {
	return r.node.limitsOf(keys.KeyspaceID(r.Descriptor().GetKeyspace()))
}
