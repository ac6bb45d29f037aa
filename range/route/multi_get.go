package route

import (
	"bytes"
	"slices"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// How calls that read keys of one node's partitions share a request.
//
// Most of what a small read costs is that it is a request: on both sides it is made, encoded,
// counted, decoded, answered. So the BatchGets of one keyspace that go to one node at one timestamp
// become a MultiGet, if they are of few keys together. Its answer is each call's answer or refusal,
// from which the call goes on as if it had been sent by itself. The partitions that would have to
// wait are not in it: their calls are sent by themselves, so that they hold no other up. So are all
// if the node does not take the request.

// maxShared is of how many keys a shared request is at most: the node reads them before it reads
// on.
const maxShared = 64

// share makes one request of those of the calls that were gathered for a lane, from the first on;
// nil if they cannot be one. One alone is shared as well, as long as there are others for other
// nodes: they all get the same treatment.
func (t *multiCall) share(begin int) *kvpb.Request {
	first, all := t.calls[begin].Request.GetBatchGet(), 0
	for i := begin; i >= 0; i = t.attempts[i].next {
		get := t.calls[i].Request.GetBatchGet()
		if get == nil || get.At == nil || get.Context.GetLeadership() != nil ||
			t.calls[i].Keyspace != t.calls[begin].Keyspace ||
			!sameTime(get.At, first.At) || !sameContext(get.Context, first.Context) {
			return nil
		}
		if all += len(get.Keys); all > maxShared {
			return nil
		}
	}
	m := &struct {
		request  kvpb.Request
		command  kvpb.Request_MultiGet
		get      kvpb.MultiGetRequest
		parts    [4]kvpb.PartitionKeys
		pointers [4]*kvpb.PartitionKeys
	}{}
	m.get.Partitions = m.pointers[:0]
	for i := begin; i >= 0; i = t.attempts[i].next {
		var p *kvpb.PartitionKeys
		if n := len(m.get.Partitions); n < len(m.parts) {
			p = &m.parts[n]
		} else {
			p = new(kvpb.PartitionKeys)
		}
		r := t.calls[i].Request
		p.Partition, p.Generation, p.Term, p.Keys = r.Partition, r.Generation, r.Term,
			r.GetBatchGet().Keys
		m.get.Partitions = append(m.get.Partitions, p)
	}
	m.get.At, m.get.Context = first.At, first.Context
	m.command.MultiGet = &m.get
	r := t.calls[begin].Request
	m.request.Sequence, m.request.Session, m.request.TimeoutMicros, m.request.Command = r.Sequence,
		r.Session, r.TimeoutMicros, &m.command
	return &m.request
}

func sameTime(a, b *kvpb.Timestamp) bool {
	return a == b || (a != nil && b != nil && a.Wall == b.Wall && a.Logical == b.Logical)
}

// sameContext says that two contexts are equal, but for the leadership, which is one partition's.
func sameContext(a, b *kvpb.ReadContext) bool {
	return a == b || (a != nil && b != nil && sameTime(a.UncertainUntil, b.UncertainUntil) &&
		sameTime(a.Observed, b.Observed) &&
		a.Movable == b.Movable && bytes.Equal(a.Transaction, b.Transaction) &&
		sameTime(a.Begun, b.Begun))
}

// takeShared takes in what came of a shared request, for each of its calls.
func (t *multiCall) takeShared(begin int, response *kvpb.Response, err error) (over int, _ error) {
	answered := err != nil ||
		(response.Error != nil && response.Error.Code != kvpb.ErrorCode_INVALID_ARGUMENT)
	if !answered && !t.deal(begin, response.GetMultiGet()) {
		for i := begin; i >= 0; i = t.attempts[i].next {
			t.goOn(i, nil)
		}
		return 0, nil
	}
	for i := begin; i >= 0; i = t.attempts[i].next {
		var ended int
		var failure error
		if answered {
			ended, failure = t.conclude(i, response, err)
		} else {
			ended, failure = t.takePart(i, response)
		}
		if over += ended; failure != nil {
			return over, failure
		}
	}
	return over, nil
}

// deal gives the rows of an answer to their calls; false if that is not possible.
func (t *multiCall) deal(begin int, got *kvpb.MultiGetResponse) bool {
	if got == nil {
		return false
	}
	rows, err := wire.DecodeRows(got.Rows)
	if err != nil {
		return false
	}
	for i := begin; i >= 0; i = t.attempts[i].next {
		n := 0
		for _, key := range t.calls[i].Request.GetBatchGet().Keys {
			if n < len(rows) && bytes.Equal(rows[n].Key, key) {
				n++
			}
		}
		t.attempts[i].rows, rows = rows[:n:n], rows[n:]
	}
	return len(rows) == 0
}

// takePart takes in what an answer to a shared request says about one of its calls.
func (t *multiCall) takePart(i int, response *kvpb.Response) (over int, _ error) {
	x, got := &t.attempts[i], response.GetMultiGet()
	id := uint64(x.partition.ID)
	if slices.Contains(got.Alone, id) {
		t.goOn(i, nil)
		return 0, nil
	}
	if at := slices.IndexFunc(got.Refused,
		func(r *kvpb.PartitionRefusal) bool { return r.Partition == id }); at >= 0 {
		refusal := got.Refused[at].Error
		if refusal == nil {
			refusal = &kvpb.Error{Message: "it refused without a reason"}
		}
		return t.conclude(i, &kvpb.Response{Now: response.Now, ClockUntrusted: response.ClockUntrusted,
			Error: refusal}, nil)
	}
	at := x.call.Request.GetBatchGet().At
	t.sender.Clock.Hear(at)
	t.sender.Clock.Read(at)
	return 1, t.done(i, Answer{Response: response, Partition: x.partition, Node: x.leader.Node.ID,
		Term: x.leader.Term, Shared: true, Rows: x.rows}, nil)
}
