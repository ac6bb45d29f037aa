package fakeserver

import (
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// write is a write that is being executed.
type write struct {
	store     *Store
	partition *Partition
	clock     *Clock
	by        WriteID
	session   hlc.Timestamp
	// at is the timestamp of the write; zero until stamp is called.
	at hlc.Timestamp
}

// stamp returns the timestamp of the write.
func (w *write) stamp() hlc.Timestamp {
	if !w.at.IsZero() {
		return w.at
	}
	m, p := w.store.Mistakes, w.partition
	w.at = w.clock.Now()
	floors := []hlc.Timestamp{p.Highest, p.Low}
	if m.LowWrites || m.DroppedSession {
		w.at = hlc.Timestamp{Wall: w.clock.Physical()} // the clock as if no request had moved it forward
	}
	if !m.LowWrites {
		floors = append(floors, p.Read)
	}
	if !m.DroppedSession && !m.LowWrites {
		floors = append(floors, w.session)
	}
	for _, floor := range floors {
		w.at = hlc.Max(w.at, floor.Next())
	}
	p.Highest = w.at
	w.clock.Give(w.at)
	return w.at
}

// put adds a version.
func (w *write) put(key, value []byte, tombstone bool) {
	s, d, at := w.store, w.partition.Data, w.stamp()
	if s.oneOf(s.Mistakes.LostWrites, 20) {
		return
	}
	d.Versions[string(key)] = append(d.Versions[string(key)],
		Version{At: at, Value: string(value), Tombstone: tombstone, By: w.by})
	if s.oneOf(s.Mistakes.LostSoon, 20) {
		s.later(30*time.Millisecond, func() {
			d.Versions[string(key)] = slices.DeleteFunc(d.Versions[string(key)],
				func(v Version) bool { return v.At == at })
		})
	}
}

// run executes a write that belongs to no transaction.
func (w *write) run(r *kvpb.Request) *kvpb.Response {
	s, p := w.store, w.partition
	answer := &kvpb.Response{}
	switch c := r.Command.(type) {
	case *kvpb.Request_Put:
		if v := s.own(p, c.Put.Key, w.by); v != nil {
			w.at = v.At
		} else {
			w.put(c.Put.Key, c.Put.Value, false)
		}
		answer.Result = &kvpb.Response_Put{Put: &kvpb.PutResponse{Version: wire.ToTimestamp(w.at)}}
	case *kvpb.Request_Delete:
		key, existed := string(c.Delete.Key), false
		if v := s.own(p, c.Delete.Key, w.by); v != nil {
			existed = p.Data.Live(key, v.At.Prev()) != nil
		} else if existed = p.Data.Live(key, hlc.MaxTimestamp) != nil; existed {
			w.put(c.Delete.Key, nil, true)
		}
		answer.Result = &kvpb.Response_Delete{Delete: &kvpb.DeleteResponse{Existed: existed}}
	case *kvpb.Request_CompareAndSwap:
		answer.Result = &kvpb.Response_CompareAndSwap{CompareAndSwap: w.swap(c.CompareAndSwap)}
	case *kvpb.Request_WriteBatch:
		if !w.batch(c.WriteBatch.Operations) {
			return Refusal(kvpb.ErrorCode_KEY_OUT_OF_SPAN, "a key of the batch lies elsewhere")
		}
		answer.Result = &kvpb.Response_WriteBatch{WriteBatch: &kvpb.WriteBatchResponse{
			Version: wire.ToTimestamp(w.at)}}
	case *kvpb.Request_DeleteRange:
		answer.Result = &kvpb.Response_DeleteRange{DeleteRange: w.deleteRange(c.DeleteRange)}
	default:
		return Refusal(kvpb.ErrorCode_INVALID_ARGUMENT, "no such write")
	}
	if s.oneOf(s.Mistakes.RefusedWrites, 20) {
		return Refusal(kvpb.ErrorCode_CORRUPTION, "a refusal that is a lie")
	}
	return answer
}

// batch executes a batch. It returns false, and does nothing, if a key lies in another partition.
func (w *write) batch(operations []*kvpb.WriteOperation) bool {
	s, p := w.store, w.partition
	if v := s.own(p, operations[0].Key, w.by); v != nil {
		w.at = v.At
		return true
	}
	for _, o := range operations {
		if !p.Contains(string(o.Key)) {
			return false
		}
	}
	if s.oneOf(s.Mistakes.TornBatches, 20) {
		operations = operations[:len(operations)/2]
	}
	for _, o := range operations {
		w.put(o.Key, o.Value, o.Delete)
	}
	return true
}

func (w *write) swap(c *kvpb.CompareAndSwapRequest) *kvpb.CompareAndSwapResponse {
	s, p := w.store, w.partition
	if v := s.own(p, c.Key, w.by); v != nil {
		return &kvpb.CompareAndSwapResponse{Swapped: true, Version: wire.ToTimestamp(v.At)}
	}
	v := p.Data.Live(string(c.Key), hlc.MaxTimestamp)
	matches := s.oneOf(s.Mistakes.BlindSwaps, 10)
	switch e := c.Expected.(type) {
	case *kvpb.CompareAndSwapRequest_Absent:
		matches = matches || v == nil
	case *kvpb.CompareAndSwapRequest_Value:
		matches = matches || v != nil && v.Value == string(e.Value)
	case *kvpb.CompareAndSwapRequest_Version:
		matches = matches || v != nil && v.At == wire.FromTimestamp(e.Version)
	}
	switch {
	case matches:
		w.put(c.Key, c.NewValue, c.Delete)
		return &kvpb.CompareAndSwapResponse{Swapped: true, Version: wire.ToTimestamp(w.at)}
	case v == nil:
		return &kvpb.CompareAndSwapResponse{}
	}
	return &kvpb.CompareAndSwapResponse{Found: true, Current: []byte(v.Value),
		CurrentVersion: wire.ToTimestamp(v.At)}
}

func (w *write) deleteRange(c *kvpb.DeleteRangeRequest) *kvpb.DeleteRangeResponse {
	s, p := w.store, w.partition
	if before := s.deleted[w.by]; before != nil && !s.Mistakes.DoubledRetries {
		return cloned(before)
	}
	out := &kvpb.DeleteRangeResponse{}
	for _, key := range p.keysIn(c.Start, c.End, hlc.MaxTimestamp) {
		if out.Deleted == uint64(min(int(c.MaxRows), s.PageRows)) {
			out.More, out.Resume = true, []byte(key)
			break
		}
		out.Deleted++
		if !s.oneOf(s.Mistakes.Undeleted, 5) {
			w.put([]byte(key), nil, true)
		}
	}
	s.deleted[w.by] = out
	return cloned(out)
}
