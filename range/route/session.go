package route

import (
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// session is the highest timestamp seen in any answer. What it points to is never changed, so requests share it, and an
// answer's own timestamp becomes it without a copy.
type session struct {
	highest atomic.Pointer[kvpb.Timestamp]
}

// observe raises the session to ts, which is not changed any more by anyone.
func (s *session) observe(ts *kvpb.Timestamp) {
	if ts == nil {
		return
	}
	for {
		old := s.highest.Load()
		if old != nil && !lessTimestamp(old, ts) {
			return
		}
		if s.highest.CompareAndSwap(old, ts) {
			return
		}
	}
}

func (s *session) load() hlc.Timestamp { return rpc.FromTimestamp(s.highest.Load()) }

func lessTimestamp(a, b *kvpb.Timestamp) bool {
	return a.Wall < b.Wall || (a.Wall == b.Wall && a.Logical < b.Logical)
}
