package replica

import (
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// How large transactions make way for others.
//
// A large transaction, and the end of its locks, rest after each of their steps (txn/committer's tempo, clearing). Where nobody else is
// served they need not rest for long; where somebody is, what he asks for must find an idle processor nearly always, not every other time. So a
// node notes when it was last asked for something by others: reads, writes, locks of small transactions. The requests by which large transactions lay
// their locks do not count, nor what goes with them: heartbeats, pushes, ends, resolutions. (Their reads do, but they are over by then.)

const (
	// crowdedFor is for how long after such a request a node counts as crowded, and crowdedNote how exactly the time is noted.
	crowdedFor  = time.Second
	crowdedNote = 50 * time.Millisecond
)

// crowd is when a node was last asked for something by others.
type crowd struct {
	epoch time.Time
	// last is the time since epoch, in nanoseconds; 0: never.
	last atomic.Int64
}

// Asked notes a batch of requests. They may be hostile, but have commands.
func (n *Node) Asked(batch []*kvpb.Request, now time.Time) {
	at := int64(now.Sub(n.crowd.epoch))
	if last := n.crowd.last.Load(); last != 0 && at < last+int64(crowdedNote) {
		return
	}
	for _, q := range batch {
		if impatient(q) {
			n.crowd.last.Store(at)
			return
		}
	}
}

// impatient says that a request counts.
func impatient(q *kvpb.Request) bool {
	switch c := q.Command.(type) {
	case *kvpb.Request_Get, *kvpb.Request_BatchGet, *kvpb.Request_MultiGet, *kvpb.Request_Scan, *kvpb.Request_MergeScan, *kvpb.Request_Count,
		*kvpb.Request_Put, *kvpb.Request_Delete, *kvpb.Request_CompareAndSwap, *kvpb.Request_WriteBatch, *kvpb.Request_DeleteRange:
		return true
	case *kvpb.Request_Prepare:
		return !c.Prepare.GetPatient()
	}
	return false
}

// crowded says whether others use the node.
func (n *Node) crowded(now time.Time) bool {
	last := n.crowd.last.Load()
	return last != 0 && now.Sub(n.crowd.epoch)-time.Duration(last) < crowdedFor
}
