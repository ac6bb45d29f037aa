package replica

import (
	"unsafe"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
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

// tell has an answer say what time it is, but at least some timestamp that it tells of. The answer
// may have memory for that.
func (n *Node) tell(response *kvpb.Response, atLeast hlc.Timestamp) {
	now, trusted := n.Clock.Reading()
	if response.Now == nil {
		response.Now = &kvpb.Timestamp{}
	}
	command.SetTimestamp(response.Now, hlc.Max(now, atLeast))
	response.ClockUntrusted = !trusted
}

// untrustedClock refuses a request of which the timestamp would come from a clock that others must
// not go by.
func (r *Replica) untrustedClock(q *kvpb.Request) *kvpb.Response {
	return newError(q, kvpb.ErrorCode_CLOCK_SKEW, "partition %s: this server's clock has just been "+
		"set, or its machine was suspended, and it has not been looked at since", r.id)
}

// unbelievedClock refuses a request to a leadership that has begun while the clock of its node was
// not believed.
func (r *Replica) unbelievedClock(q *kvpb.Request) *kvpb.Response {
	return newError(q, kvpb.ErrorCode_CLOCK_SKEW, "partition %s: the clock of its leader's node has "+
		"not been confirmed by those of the peers since that leader was elected; check the time "+
		"synchronisation if it lasts", r.id)
}

// text is a string of the same memory as b, which must not be changed as long as the string lives.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
