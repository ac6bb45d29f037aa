package replica

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// placeGetLocked says what a read of one key waits for. A read of the latest value does not wait for what is in flight: that
// is not acknowledged, so the value below it is as good. Unless the session has seen a later timestamp than
// that of what is in flight: then its order would show.
func (r *Replica) placeGetLocked(rd *read, key []byte) *pendingEntry {
	if !rd.at.IsZero() || rd.context != nil {
		return r.proposalLocked(r.newestInFlightLocked(key, rd.timestamp))
	}
	oldest := r.mu.pending.Oldest(text(key))
	if oldest == nil {
		return nil
	}
	if sequence := r.newestInFlightLocked(key, rd.session); sequence != 0 {
		return r.proposalLocked(sequence)
	}
	if oldest.Timestamp.LessEq(rd.timestamp) {
		rd.timestamp = oldest.Timestamp.Prev()
	}
	return nil
}

func (r *Replica) get(rd *read, c *kvpb.GetRequest) (*kvpb.Response, error) {
	v, found, err := mvcc.GetUncertain(r.state, keys.InternalKey(rd.descriptor, c.Key), rd.timestamp, rd.uncertainUntil())
	if err != nil {
		return nil, err
	}
	rd.see(v, found)
	response, m, version := getResponse(rd.pending.Request.Id)
	if isValue(v, found) {
		m.Found, m.Value, m.Version = true, v.Value, version
		setTimestamp(version, v.Timestamp)
	}
	if rd.context != nil {
		m.At = rpc.ToTimestamp(rd.timestamp)
	}
	return response, nil
}

func (r *Replica) batchGet(rd *read, c *kvpb.BatchGetRequest) (*kvpb.Response, error) {
	m := &kvpb.BatchGetResponse{At: rpc.ToTimestamp(rd.timestamp), Values: make([]*kvpb.GetResponse, len(c.Keys))}
	values := make([]kvpb.GetResponse, len(c.Keys))
	getter, err := mvcc.NewGetter(r.state)
	if err != nil {
		return nil, err
	}
	defer getter.Close()
	var internalKey []byte
	size := 0
	for i, key := range c.Keys {
		internalKey = keys.AppendInternalKey(internalKey[:0], rd.descriptor, key)
		v, found, err := getter.GetUncertain(internalKey, rd.timestamp, rd.uncertainUntil())
		if err != nil {
			return nil, err
		}
		rd.see(v, found)
		m.Values[i] = &values[i]
		if !isValue(v, found) {
			continue
		}
		if size += len(v.Value); size > maxBatchBytes {
			return newError(rd.pending.Request, kvpb.ErrorCode_INVALID_ARGUMENT,
				"a batch get returns at most %d bytes; the first %d of its %d keys have more", maxBatchBytes, i+1, len(c.Keys)), nil
		}
		values[i].Found, values[i].Value, values[i].Version = true, v.Value, rpc.ToTimestamp(v.Timestamp)
	}
	return &kvpb.Response{Id: rd.pending.Request.Id, Result: &kvpb.Response_BatchGet{BatchGet: m}}, nil
}

// see notes that a version was looked at.
func (rd *read) see(v mvcc.Version, found bool) {
	if found && v.Waits {
		rd.seen = hlc.Max(rd.seen, v.Timestamp)
	}
}
