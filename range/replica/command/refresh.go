package command

import (
	"errors"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/mvcc/vacant"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn"
)

// Refresh validates a transaction's reads at a later timestamp. It is itself a read at that
// timestamp, of everything that the transaction read: it enters the timestamp cache, so that
// nothing is written at or below its timestamp any more, and waits like any other read for pending
// writes and for other transactions' locks. It checks whether there is any version, or any expiry
// of a value that was read, between the two timestamps.
var Refresh = register((*kvpb.Request_Refresh)(nil), Command{
	Name:          "refresh",
	Dispatch:      AtTimestamp,
	Transactional: true,
	Body:          func(q *kvpb.Request) bool { return q.GetRefresh() != nil },
	Permissions: func(at request.Place, q *kvpb.Request,
		needs []access.Permission) []access.Permission {
		return request.NeedReads(needs, at.Keyspace, q.GetRefresh().GetReads())
	},
	Footprint: func(q *kvpb.Request) request.Footprint {
		reads := q.GetRefresh().GetReads()
		return request.Footprint{Many: reads.GetKeys(), Spans: reads.GetSpans()}
	},
	Named:     func(q *kvpb.Request) int64 { return wall(q.GetRefresh().GetTo()) },
	CheckRead: checkRefresh,
	Read:      refresh,
})

// Refreshing holds the parameters of a refresh.
type Refreshing struct {
	Transaction txn.ID
	// Begun is the start of the transaction.
	Begun hlc.Timestamp
	// Yield is set if the refresh gives way to older transactions.
	Yield bool
}

func checkRefresh(d *clusterpb.Partition, q *kvpb.Request) (r Reading, p *request.Problem) {
	c := q.GetRefresh()
	if r.At = wire.FromTimestamp(c.GetTo()); r.At.IsZero() {
		return r, request.Invalid("a refresh needs the timestamp to which the reads are to be good")
	}
	own, err := txn.ParseOptionalID(c.GetTransaction())
	if err != nil {
		return r, request.Invalid("a refresh: %v", err)
	}
	r.Refresh = &Refreshing{Transaction: own, Begun: wire.FromTimestamp(c.GetBegun()),
		Yield: c.GetYield()}
	_, p = checkReadSet(d, c.GetReads())
	return r, p
}

// checkReadSet validates the reads of a transaction.
func checkReadSet(d *clusterpb.Partition, s *kvpb.ReadSet) (size int, p *request.Problem) {
	if n := len(s.GetKeys()) + len(s.GetSpans()); n > request.MaxReadSet {
		return 0, request.Invalid("a read set has at most %d keys and spans, this one has %d",
			request.MaxReadSet, n)
	}
	for _, key := range s.GetKeys() {
		if p := request.CheckKey(d, key); p != nil {
			return 0, p
		}
		size += len(key)
	}
	for _, span := range s.GetSpans() {
		if p := request.CheckSpan(d, span.GetStart(), span.GetEnd()); p != nil {
			return 0, p
		}
		size += len(span.GetStart()) + len(span.GetEnd())
	}
	some := len(s.GetKeys())+len(s.GetSpans()) > 0
	if some && wire.FromTimestamp(s.GetAt()).IsZero() {
		return 0, request.Invalid("a read set does not say as of when it was read")
	}
	if l := s.GetLeadership(); l != nil && (len(s.GetKeys()) == 0 || l.Term == 0) {
		return size,
			request.Invalid("a read set names a leadership without a term, or no key that was " +
				"read under it")
	}
	return size, nil
}

// refresh looks for versions, and expiries, above the timestamp of the reads, up to that of the
// refresh.
func refresh(v *View, q *kvpb.Request) (*kvpb.Response, error) {
	reads := q.GetRefresh().GetReads()
	at := wire.FromTimestamp(reads.GetAt())
	if len(reads.GetKeys())+len(reads.GetSpans()) > 0 {
		changed, err := v.changedSince(reads, at)
		if err != nil {
			return nil, err
		}
		if changed != nil {
			v.Partition.Conflicts()
			return Changed(v.Descriptor, q, changed, at), nil
		}
		if l := reads.GetLeadership(); l != nil && !v.Partition.SameLeadership(l) {
			v.Partition.Conflicts()
			return LeaderChanged(v.Descriptor, q, reads), nil
		}
		// A tombstone may have been collected with all that it hid.
		if refusal := v.Partition.TooOld(q, at); refusal != nil {
			return refusal, nil
		}
	}
	return &kvpb.Response{Id: q.Id, Result: &kvpb.Response_Refresh{Refresh: &kvpb.RefreshResponse{}}},
		nil
}

// changedSince returns a user key of the read set with a version above at, up to the view's
// timestamp, or with a value that expires in between.
func (v *View) changedSince(reads *kvpb.ReadSet, at hlc.Timestamp) ([]byte, error) {
	if len(reads.GetKeys()) > 0 {
		getter, err := mvcc.NewGetter(v.State)
		if err != nil {
			return nil, err
		}
		defer getter.Close()
		var internalKey []byte
		for _, key := range reads.GetKeys() {
			internalKey = keys.AppendInternalKey(internalKey[:0], v.Descriptor, key)
			_, _, err := getter.ViewUncertain(internalKey, at,
				mvcc.Limits{Versions: v.At, Expiries: v.At})
			var u *mvcc.UncertaintyError
			if errors.As(err, &u) {
				return key, nil
			}
			if err != nil {
				return nil, err
			}
		}
	}
	for _, span := range reads.GetSpans() {
		internal := request.InternalSpan(v.Descriptor, span.GetStart(), span.GetEnd())
		key, _, err := changedInSpan(v.State, v.Vacant, internal, at,
			mvcc.Limits{Versions: v.At, Expiries: v.At})
		if err != nil {
			return nil, err
		}
		if key != nil {
			return keys.UserKey(v.Descriptor, key), nil
		}
	}
	return nil, nil
}

// changedInSpan returns an internal key with a version above at, or a value that expires after at,
// up to limits; nil if there is none. expires is then the first expiry of the values that are live
// at at; 0 if none expires.
func changedInSpan(r engine.Reader, known *vacant.Memory, span keys.Span, at hlc.Timestamp,
	to mvcc.Limits) (key []byte, expires int64, err error) {
	if span.Empty() {
		return nil, 0, nil
	}
	result, err := mvcc.Count(r, mvcc.ScanOptions{Span: span, At: at, Uncertain: to,
		Vacant: known})
	var u *mvcc.UncertaintyError
	if errors.As(err, &u) {
		return u.Key, 0, nil
	}
	return nil, result.Expires, err
}

// Changed is the answer that something which a transaction read has changed.
func Changed(d *clusterpb.Partition, q *kvpb.Request, key []byte, at hlc.Timestamp) *kvpb.Response {
	response := request.Refuse(q, kvpb.ErrorCode_TRANSACTION_CONFLICT,
		"partition %s: key %s has changed since it was read at %s; run the transaction again",
		keys.PartitionID(d.GetId()), keys.Pretty(key), at)
	response.Error.Conflict = &kvpb.Conflict{Key: key}
	return response
}

// LeaderChanged is the answer that reads under volatile locks are not valid any more because the
// leadership has changed.
func LeaderChanged(d *clusterpb.Partition, q *kvpb.Request, reads *kvpb.ReadSet) *kvpb.Response {
	response := request.Refuse(q, kvpb.ErrorCode_TRANSACTION_CONFLICT,
		"partition %s: the leader changed since keys were read under a lock; run the transaction again",
		keys.PartitionID(d.GetId()))
	response.Error.Conflict = &kvpb.Conflict{LeaderChanged: true}
	if len(reads.GetKeys()) > 0 {
		response.Error.Conflict.Key = reads.Keys[0]
	}
	return response
}
