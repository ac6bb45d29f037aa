package clock

import "github.com/tidemarkdb/tidemark/rpc/kvpb"

// What the session has seen.
//
// The session's timestamp grows with every clock that it hears of, so a read at or above it is one
// of the present. A read that is to see what this client has written and read asks for less: the
// timestamps of that.

// observeSeen raises what was seen to what an answer shows. What is read again at or above that is
// the same, or later.
func (s *session) observeSeen(r *kvpb.Response) {
	switch result := r.Result.(type) {
	case *kvpb.Response_Get:
		s.observe(seenOf(result.Get, r))
	case *kvpb.Response_Put:
		s.observe(result.Put.GetVersion())
	case *kvpb.Response_Delete:
		s.observe(either(result.Delete.GetVersion(), r.Now))
	case *kvpb.Response_CompareAndSwap:
		s.observe(either(result.CompareAndSwap.GetVersion(),
			either(result.CompareAndSwap.GetCurrentVersion(), r.Now)))
	case *kvpb.Response_Increment:
		s.observe(either(result.Increment.GetVersion(), r.Now))
	case *kvpb.Response_WriteBatch:
		s.observe(either(result.WriteBatch.GetVersion(), r.Now))
	case *kvpb.Response_Load:
		s.observe(either(result.Load.GetVersion(), r.Now))
	case *kvpb.Response_Changes:
		for _, c := range result.Changes.GetChanges() {
			s.observe(c.GetVersion())
		}
	case *kvpb.Response_DeleteRange:
		s.observe(either(result.DeleteRange.GetVersion(), r.Now))
	case *kvpb.Response_BatchGet:
		for _, v := range result.BatchGet.GetValues() {
			if !v.GetFound() {
				s.observe(either(result.BatchGet.GetAt(), r.Now))
				return
			}
			s.observe(v.Version)
		}
	case *kvpb.Response_Scan:
		s.observe(either(result.Scan.GetAt(), r.Now))
	case *kvpb.Response_Count:
		s.observe(either(result.Count.GetAt(), r.Now))
	case *kvpb.Response_Prepare:
		// Of a one-phase transaction it is the commit timestamp.
		s.observe(result.Prepare.GetPrepared())
	case *kvpb.Response_EndTransaction:
		if status := result.EndTransaction.GetStatus(); status.GetState() ==
			kvpb.TransactionState_COMMITTED {
			s.observe(status.GetTimestamp())
		}
	}
}

// seenOf is what the answer to a get shows: a value is the one of its key from its version on. That
// there is none may be since just now.
func seenOf(g *kvpb.GetResponse, r *kvpb.Response) *kvpb.Timestamp {
	if g.GetFound() {
		return g.Version
	}
	return either(g.GetAt(), either(r.ReadAt, r.Now))
}

func either(a, b *kvpb.Timestamp) *kvpb.Timestamp {
	if a != nil {
		return a
	}
	return b
}
