package replica

import (
	"errors"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// A refresh is a read at the later timestamp, of everything that the transaction read: it goes through the timestamp cache, so that
// nothing is written at or below any more, and waits like any other read for what is in flight and for other transactions' locks.
// What it reads is whether there is any version between the two timestamps.

// maxReadSet bounds the keys and spans of a read set.
const maxReadSet = 100_000

// checkReadSet looks at what a transaction says it has read.
func (r *Replica) checkReadSet(s *kvpb.ReadSet) (size int, p *problem) {
	if n := len(s.GetKeys()) + len(s.GetSpans()); n > maxReadSet {
		return 0, invalid("a read set has at most %d keys and spans, this one has %d", maxReadSet, n)
	}
	for _, key := range s.GetKeys() {
		if p := r.checkKey(key); p != nil {
			return 0, p
		}
		size += len(key)
	}
	for _, span := range s.GetSpans() {
		if p := r.checkSpan(span.GetStart(), span.GetEnd()); p != nil {
			return 0, p
		}
		size += len(span.GetStart()) + len(span.GetEnd())
	}
	if len(s.GetKeys())+len(s.GetSpans()) > 0 && rpc.FromTimestamp(s.GetAt()).IsZero() {
		return 0, invalid("a read set does not say as of when it was read")
	}
	return size, checkLeadership(s)
}

func (r *Replica) checkRefresh(rd *read, c *kvpb.RefreshRequest) *problem {
	rd.at = rpc.FromTimestamp(c.GetTo())
	if rd.at.IsZero() {
		return invalid("a refresh needs the timestamp to which the reads are to be good")
	}
	own, err := txn.ParseOptionalID(c.GetTransaction())
	if err != nil {
		return invalid("a refresh: %v", err)
	}
	rd.detail()
	rd.own, rd.begun = own, rpc.FromTimestamp(c.GetBegun())
	_, p := r.checkReadSet(c.GetReads())
	return p
}

// placeRefreshLocked notes the reads in the timestamp cache, and returns the proposal that has to be waited for.
func (r *Replica) placeRefreshLocked(rd *read, c *kvpb.RefreshRequest) *pendingEntry {
	var last uint64
	for _, key := range c.GetReads().GetKeys() {
		r.mu.cache.Record(key, rd.timestamp)
		last = max(last, r.newestInFlightLocked(key, rd.timestamp))
	}
	for _, span := range c.GetReads().GetSpans() {
		r.mu.cache.RecordSpan(keys.Span{Start: span.GetStart(), End: span.GetEnd()}, rd.timestamp)
		if p := r.newestInSpanLocked(rd, span.GetStart(), span.GetEnd()); p != nil {
			last = max(last, p.sequence)
		}
	}
	return r.proposalLocked(last)
}

// refresh looks for versions above the timestamp of the reads, up to that of the refresh.
func (r *Replica) refresh(rd *read, c *kvpb.RefreshRequest) (*kvpb.Response, error) {
	q := rd.pending.Request
	at := rpc.FromTimestamp(c.GetReads().GetAt())
	if len(c.GetReads().GetKeys())+len(c.GetReads().GetSpans()) > 0 {
		conflict, err := r.changedSince(rd, c.GetReads(), at)
		if err != nil {
			return nil, err
		}
		if conflict != nil {
			return r.conflictError(q, conflict, at), nil
		}
		if !r.sameLeadership(c.GetReads()) {
			return r.leadershipError(q, c.GetReads()), nil
		}
		// A tombstone may have been collected with all that it hid.
		if refusal := r.checkThreshold(rd, at); refusal != nil {
			return refusal, nil
		}
	}
	return &kvpb.Response{Id: q.Id, Result: &kvpb.Response_Refresh{Refresh: &kvpb.RefreshResponse{}}}, nil
}

// changedSince finds a user key of the read set with a version above at, up to the read's timestamp.
func (r *Replica) changedSince(rd *read, reads *kvpb.ReadSet, at hlc.Timestamp) ([]byte, error) {
	if len(reads.GetKeys()) > 0 {
		getter, err := mvcc.NewGetter(r.state)
		if err != nil {
			return nil, err
		}
		defer getter.Close()
		var internalKey []byte
		for _, key := range reads.GetKeys() {
			internalKey = keys.AppendInternalKey(internalKey[:0], rd.descriptor, key)
			v, found, err := getter.View(internalKey, rd.timestamp)
			if err != nil {
				return nil, err
			}
			if found && at.Less(v.Timestamp) {
				return key, nil
			}
		}
	}
	for _, span := range reads.GetSpans() {
		key, err := changedInSpan(r, internalSpan(rd.descriptor, span.GetStart(), span.GetEnd()), at, rd.timestamp)
		if err != nil {
			return nil, err
		}
		if key != nil {
			return keys.UserKey(rd.descriptor, key), nil
		}
	}
	return nil, nil
}

// changedInSpan finds an internal key with a version above at, up to a timestamp; nil if there is none.
func changedInSpan(r *Replica, span keys.Span, at, to hlc.Timestamp) ([]byte, error) {
	if span.Empty() {
		return nil, nil
	}
	_, err := mvcc.Count(r.state, mvcc.ScanOptions{Span: span, At: at, UncertainUntil: to})
	var u *mvcc.UncertaintyError
	if errors.As(err, &u) {
		return u.Key, nil
	}
	return nil, err
}

// conflictError says that what a transaction read has changed.
func (r *Replica) conflictError(q *kvpb.Request, key []byte, at hlc.Timestamp) *kvpb.Response {
	r.node.Metrics.conflicts.Inc()
	response := newError(q, kvpb.ErrorCode_TRANSACTION_CONFLICT,
		"partition %s: key %s has changed since it was read at %s; run the transaction again", r.id, keys.Pretty(key), at)
	response.Error.Conflict = &kvpb.Conflict{Key: key}
	return response
}
