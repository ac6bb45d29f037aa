package clock

import (
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// session is the highest timestamp seen in any answer. What it points to is never changed, so
// requests share it, and an answer's own timestamp becomes it without a copy.
type session struct {
	highest atomic.Pointer[kvpb.Timestamp]
}

// observe raises the session to ts, which must not change any more.
func (s *session) observe(ts *kvpb.Timestamp) {
	if ts == nil {
		return
	}
	for {
		old := s.highest.Load()
		if old != nil && !less(old, ts) {
			return
		}
		if s.highest.CompareAndSwap(old, ts) {
			return
		}
	}
}

func (s *session) load() hlc.Timestamp { return wire.FromTimestamp(s.highest.Load()) }

func less(a, b *kvpb.Timestamp) bool {
	return a.Wall < b.Wall || (a.Wall == b.Wall && a.Logical < b.Logical)
}

// observeResult raises the session to what a result names. That lies at or below the node's clock
// in all but the first moments of a leader whose predecessors' clocks were ahead of it.
func (s *session) observeResult(r *kvpb.Response) {
	switch result := r.Result.(type) {
	case *kvpb.Response_Get:
		s.observe(result.Get.GetVersion())
		s.observe(result.Get.GetAt())
	case *kvpb.Response_Put:
		s.observe(result.Put.GetVersion())
	case *kvpb.Response_Delete:
		s.observe(result.Delete.GetVersion())
	case *kvpb.Response_CompareAndSwap:
		s.observe(result.CompareAndSwap.GetVersion())
		s.observe(result.CompareAndSwap.GetCurrentVersion())
	case *kvpb.Response_WriteBatch:
		s.observe(result.WriteBatch.GetVersion())
	case *kvpb.Response_BatchGet:
		s.observe(result.BatchGet.GetAt())
	case *kvpb.Response_Scan:
		s.observe(result.Scan.GetAt())
	case *kvpb.Response_Count:
		s.observe(result.Count.GetAt())
	case *kvpb.Response_Changes:
		for _, c := range result.Changes.GetChanges() {
			s.observe(c.GetVersion())
		}
	case *kvpb.Response_DeleteRange:
		s.observe(result.DeleteRange.GetVersion())
	case *kvpb.Response_Prepare:
		// Of a one-phase transaction it is the commit timestamp; of another one it is at or below that.
		s.observe(result.Prepare.GetPrepared())
	case *kvpb.Response_EndTransaction:
		status := result.EndTransaction.GetStatus()
		if status.GetState() == kvpb.TransactionState_COMMITTED {
			s.observe(status.GetTimestamp())
		}
	}
}
