package fakeserver

import (
	"bytes"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// maxAnswer is the number of bytes of values that one answer to a batch of gets may have.
const maxAnswer = 1 << 20

// reading is a read that is being executed.
type reading struct {
	store     *Store
	partition *Partition
	clock     *Clock
	session   hlc.Timestamp
	// told is the timestamp in the answer.
	told hlc.Timestamp
}

// read executes a read.
func (s *Store) read(p *Partition, clock *Clock, r *kvpb.Request) *kvpb.Response {
	session := wire.FromTimestamp(r.Session)
	if r.ReplicaRead != nil {
		session = hlc.Max(session, wire.FromTimestamp(r.ReplicaRead.AtLeast))
	}
	q := &reading{store: s, partition: p, clock: clock, session: session}
	switch c := r.Command.(type) {
	case *kvpb.Request_Get:
		response := q.get(c.Get)
		if (r.ReplicaRead != nil || r.Admit) && response.Error == nil {
			response.ReadAt = wire.ToTimestamp(q.told)
		}
		return response
	case *kvpb.Request_BatchGet:
		return q.batchGet(c.BatchGet)
	case *kvpb.Request_Scan:
		return q.scan(c.Scan)
	case *kvpb.Request_Count:
		return q.count(c.Count)
	case *kvpb.Request_Changes:
		return q.changes(c.Changes)
	}
	return Refusal(kvpb.ErrorCode_INVALID_ARGUMENT, "no such read")
}

// moment returns the timestamp at which a read is executed, and the timestamp in its answer. They
// differ only by a deliberate mistake.
func (q *reading) moment(asked *kvpb.Timestamp) (reads, told hlc.Timestamp) {
	s, p := q.store, q.partition
	at := wire.FromTimestamp(asked)
	if at.IsZero() {
		at = hlc.Max(hlc.Max(q.clock.Now(), q.session), p.Highest)
	}
	q.clock.Give(at)
	q.told = at
	p.Read = hlc.Max(p.Read, at)
	if asked == nil && s.oneOf(s.Mistakes.StaleReads, 10) {
		return at.Add(-500 * time.Millisecond), at
	}
	return at, at
}

func (q *reading) value(key []byte, at hlc.Timestamp) *kvpb.GetResponse {
	return q.partition.Data.value(string(key), at)
}

// value returns the result of a get.
func (d *Data) value(key string, at hlc.Timestamp) *kvpb.GetResponse {
	v := d.Live(key, at)
	if v == nil {
		return &kvpb.GetResponse{}
	}
	return &kvpb.GetResponse{Found: true, Value: []byte(v.Value), Version: wire.ToTimestamp(v.At)}
}

func (q *reading) get(c *kvpb.GetRequest) *kvpb.Response {
	reads, told := q.moment(c.At)
	if refused := q.partition.uncertain(keys.Point(c.Key), reads,
		c.Context.GetUncertainUntil()); refused != nil {
		if !c.Context.Movable {
			return refused
		}
		reads, told = q.moment(refused.Error.Timestamp)
	}
	q.store.pushLocks(q.partition, keys.Point(c.Key), reads, c.Context)
	out := q.value(c.Key, reads)
	if c.Context != nil {
		out.At = wire.ToTimestamp(told)
	}
	return &kvpb.Response{Result: &kvpb.Response_Get{Get: out}}
}

func (q *reading) batchGet(c *kvpb.BatchGetRequest) *kvpb.Response {
	reads, told := q.moment(c.At)
	out, size := &kvpb.BatchGetResponse{At: wire.ToTimestamp(told)}, 0
	for _, key := range c.Keys {
		if refused := q.partition.uncertain(keys.Point(key), reads,
			c.Context.GetUncertainUntil()); refused != nil {
			return refused
		}
		q.store.pushLocks(q.partition, keys.Point(key), reads, c.Context)
		v := q.value(key, reads)
		size += len(v.Value)
		out.Values = append(out.Values, v)
	}
	if size > maxAnswer {
		return Refusal(kvpb.ErrorCode_INVALID_ARGUMENT, "too much for one answer")
	}
	return &kvpb.Response{Result: &kvpb.Response_BatchGet{BatchGet: out}}
}

func (q *reading) scan(c *kvpb.ScanRequest) *kvpb.Response {
	s := q.store
	if n := s.Mistakes.FailedScans; s.oneOf(n > 0, n) {
		return Refusal(kvpb.ErrorCode_CORRUPTION, "a scan that fails")
	}
	reads, told := q.moment(c.At)
	span := keys.Span{Start: c.Start, End: c.End}
	if refused := q.partition.uncertain(span, reads, either(c.UncertainUntil,
		c.Context)); refused != nil {
		return refused
	}
	s.pushLocks(q.partition, span, reads, c.Context)
	if s.Mistakes.PresentScans {
		reads = hlc.MaxTimestamp
	}
	out := &kvpb.ScanResponse{At: wire.ToTimestamp(told)}
	var rows []wire.Row
	for _, key := range q.partition.keysIn(c.Start, c.End, reads) {
		v := q.partition.Data.Live(key, reads)
		row := wire.Row{Key: []byte(key), Version: v.At}
		if !c.KeysOnly {
			row.Value = []byte(v.Value)
		}
		rows = append(rows, row)
	}
	out.Rows, out.More, out.Resume = s.page(rows, c.Reverse, min(int(c.MaxRows), s.PageRows),
		int(c.MaxBytes))
	return &kvpb.Response{Result: &kvpb.Response_Scan{Scan: out}}
}

func (q *reading) count(c *kvpb.CountRequest) *kvpb.Response {
	s := q.store
	reads, told := q.moment(c.At)
	span := keys.Span{Start: c.Start, End: c.End}
	if refused := q.partition.uncertain(span, reads, either(c.UncertainUntil,
		c.Context)); refused != nil {
		return refused
	}
	s.pushLocks(q.partition, span, reads, c.Context)
	found := q.partition.keysIn(c.Start, c.End, reads)
	out := &kvpb.CountResponse{Count: uint64(len(found)), At: wire.ToTimestamp(told)}
	if limit := s.PageRows; len(found) > limit {
		out.Count, out.More, out.Resume = uint64(limit), true, []byte(found[limit])
	}
	if s.oneOf(s.Mistakes.Miscount && out.Count > 0, 10) {
		out.Count--
	}
	return &kvpb.Response{Result: &kvpb.Response_Count{Count: out}}
}

// page sorts rows and cuts a page off. resume is the first key of the remaining rows. For a scan in
// reverse, resume is the exclusive end of the remaining rows.
func (s *Store) page(rows []wire.Row, reverse bool, maxRows, maxBytes int) (encoded []byte,
	more bool, resume []byte) {
	slices.SortFunc(rows, func(a, b wire.Row) int {
		if reverse {
			a, b = b, a
		}
		return bytes.Compare(a.Key, b.Key)
	})
	size := 0
	for i, row := range rows {
		if i > 0 && (i >= maxRows || size >= maxBytes) {
			next := i
			if i+1 < len(rows) && s.oneOf(s.Mistakes.LostRows, 10) {
				next = i + 1
			}
			if i > 1 && s.oneOf(s.Mistakes.RepeatedRows, 10) {
				next = i - 1
			}
			if reverse {
				next--
			}
			return encoded, true, rows[next].Key
		}
		size += len(row.Key) + len(row.Value)
		encoded = wire.AppendRow(encoded, row.Key, row.Value, row.Version, row.Expires)
	}
	return encoded, false, nil
}

func either(at *kvpb.Timestamp, c *kvpb.ReadContext) *kvpb.Timestamp {
	if at == nil {
		return c.GetUncertainUntil()
	}
	return at
}

// uncertain refuses a read if it meets a version which an earlier leader may have acknowledged
// before the read began.
func (p *Partition) uncertain(span keys.Span, at hlc.Timestamp,
	until *kvpb.Timestamp) *kvpb.Response {
	limit := hlc.Min(wire.FromTimestamp(until), p.Low)
	for key, versions := range p.Data.Versions {
		for _, v := range versions {
			if at.Less(v.At) && v.At.LessEq(limit) && span.Contains([]byte(key)) &&
				p.Contains(key) {
				refused := Refusal(kvpb.ErrorCode_UNCERTAIN,
					"a version may have been acknowledged before")
				refused.Error.Timestamp = wire.ToTimestamp(v.At)
				return refused
			}
		}
	}
	return nil
}
