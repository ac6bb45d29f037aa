package replica

import (
	"unsafe"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// reply answers a request, now.
func (r *Replica) reply(p Pending, c *command.Command, response *kvpb.Response) {
	if response.Now == nil {
		r.node.tell(response, hlc.Timestamp{})
	}
	r.node.Metrics.answered(c, response)
	p.Reply(response)
}

// tell has an answer say what time it is, but at least some timestamp that it tells of. The answer may have memory for that.
func (n *Node) tell(response *kvpb.Response, atLeast hlc.Timestamp) {
	now, sure := n.Clock.Reading()
	if response.Now == nil {
		response.Now = &kvpb.Timestamp{}
	}
	command.SetTimestamp(response.Now, hlc.Max(now, atLeast))
	response.ClockUnsure = !sure
}

// unsureClock refuses a request of which the timestamp would come from a clock that others must not go by.
func (r *Replica) unsureClock(q *kvpb.Request) *kvpb.Response {
	return newError(q, kvpb.ErrorCode_CLOCK_SKEW, "partition %s: this server's clock has just been set, or its machine was suspended, and it has not been looked at since", r.id)
}

// Responses to the common commands are one allocation each.

func putResponse(id uint64, version hlc.Timestamp) *kvpb.Response {
	m := &struct {
		response kvpb.Response
		result   kvpb.Response_Put
		put      kvpb.PutResponse
		version  kvpb.Timestamp
	}{}
	m.response.Id = id
	m.response.Result = &m.result
	m.result.Put = &m.put
	m.put.Version = &m.version
	command.SetTimestamp(&m.version, version)
	return &m.response
}

func deleteResponse(id uint64, existed bool, version hlc.Timestamp) *kvpb.Response {
	m := &kvpb.DeleteResponse{Existed: existed}
	if !version.IsZero() {
		m.Version = rpc.ToTimestamp(version)
	}
	return &kvpb.Response{Id: id, Result: &kvpb.Response_Delete{Delete: m}}
}

func swappedResponse(id uint64, version hlc.Timestamp) *kvpb.Response {
	m := &struct {
		response kvpb.Response
		result   kvpb.Response_CompareAndSwap
		swap     kvpb.CompareAndSwapResponse
		version  kvpb.Timestamp
	}{}
	m.response.Id = id
	m.response.Result = &m.result
	m.result.CompareAndSwap = &m.swap
	m.swap.Swapped = true
	m.swap.Version = &m.version
	command.SetTimestamp(&m.version, version)
	return &m.response
}

func writeBatchResponse(id uint64, version hlc.Timestamp) *kvpb.Response {
	return &kvpb.Response{Id: id, Result: &kvpb.Response_WriteBatch{WriteBatch: &kvpb.WriteBatchResponse{Version: rpc.ToTimestamp(version)}}}
}

// text is a string of the same memory as b, which must not be changed as long as the string lives.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
