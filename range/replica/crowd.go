package replica

import (
	"time"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Asked notes requests of the foreground as load: reads, writes, locks of small transactions. The
// requests by which large transactions take their locks do not count, nor what goes with them:
// heartbeats, pushes, ends, resolutions. (Their reads do, but they are over by then.) The requests may
// be hostile, but have commands.
func (n *Node) Asked(batch []*kvpb.Request, now time.Time) {
	if n.load.Noted(now) {
		return
	}
	for _, q := range batch {
		if impatient(q) {
			n.load.Note(now)
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
