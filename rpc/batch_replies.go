package rpc

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/limit"
	"github.com/tidemarkdb/tidemark/rpc/outbox"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// reply sends one response. Any goroutine may call it; it does not block.
func (ss *serverStream) reply(r *kvpb.Response) {
	if ss.authorizer != nil {
		r = ss.authorizer.authorizeReply(r)
	}
	ss.answer(r, nil)
}

// answer sends a response that was authorized. The response to a call is never refused, however
// much waits to be sent: held, if not nil, is the memory that it occupies until it is sent.
func (ss *serverStream) answer(r *kvpb.Response, held *limit.Claim) {
	if r.Error == nil || r.Error.Code == kvpb.ErrorCode_NOT_LEADER {
		ss.throttle.Use()
	}
	size, called := r.SizeVT(), r.Call != nil
	var chunk *[]byte
	var err error
	if size >= outbox.LargeRecord {
		if size > wire.MaxMessageBytes-1024 {
			r = wire.ErrorResponse(r.Id, kvpb.ErrorCode_OVERLOADED, fmt.Sprintf(
				"the response has %d bytes, which no message can hold: ask for less", size))
			r.Error.Cause = kvpb.ErrorCause_CAUSE_TOO_LARGE
			size = r.SizeVT()
		} else if chunk, err = outbox.Prepare(tagResponses, r, size); err != nil {
			held.Give()
			ss.failed(r.Id, err)
			return
		}
	}
	ss.out.Lock()
	if called {
		ss.calling--
	}
	requestSize, ok := ss.inFlight[r.Id]
	if !ok {
		ss.out.Unlock()
		held.Give()
		ss.failed(r.Id, errors.New("there is no such request, or it was answered before"))
		return
	}
	delete(ss.inFlight, r.Id)
	if requestSize < 0 {
		requestSize = -requestSize
		ss.timed.end(r.Id)
	}
	ss.bytes -= requestSize
	if refusal := ss.refusedLocked(r, size); refusal != nil {
		if chunk != nil {
			wire.Buffers.Put(chunk)
			chunk = nil
		}
		r, size = refusal, refusal.SizeVT()
	}
	var number uint64
	if chunk != nil {
		number, err = ss.out.AddChunkLocked(chunk)
	} else {
		number, err = ss.out.AddLocked(tagResponses, r, size)
	}
	switch {
	case held == nil:
	case err != nil:
		held.Give()
	default:
		ss.held = append(ss.held, heldAnswer{number, held})
	}
	ss.coverLocked()
	ss.signalRoomLocked()
	if ss.working != nil && ss.few && len(ss.inFlight) > 0 && ss.low <= r.Id && r.Id <= ss.high &&
		err == nil {
		ss.out.Unlock()
		return
	}
	ss.out.UnlockAndSend(len(ss.inFlight) == 0 ||
		(ss.working == nil && (len(ss.inFlight) <= directReplies || ss.out.QuietLocked())))
	if err != nil && !errors.Is(err, outbox.ErrClosed) {
		ss.failed(r.Id, err)
	}
}

// refusableBytes is the size from which the response of a read is replaced by a refusal if there is
// no memory for it.
const refusableBytes = 1 << 10

// refusedLocked returns the response that replaces one for which there is no memory; nil if there
// is memory. Only responses of reads are replaced, as if the read had not run.
func (ss *serverStream) refusedLocked(r *kvpb.Response, size int) *kvpb.Response {
	if size < refusableBytes || !isRead(r) {
		return nil
	}
	waiting := ss.out.PendingLocked() + ss.out.UnsentLocked()
	switch {
	case ss.out.PendingLocked() > 0 && ss.out.PendingLocked()+size > ss.server.config.MaxInFlightBytes:
	case !ss.memory.Cover(ss.heldLocked() + size):
		ss.server.metrics.overloaded.Inc()
		if refusal := ss.memory.Never(r.Id, "response", size, 0); refusal != nil {
			return refusal
		}
	default:
		return nil
	}
	return wire.ErrorResponse(r.Id, kvpb.ErrorCode_OVERLOADED, fmt.Sprintf("this server has no "+
		"memory for a response of %d bytes, or has given this client's host its share; %d bytes of "+
		"responses wait for this client to read them", size, waiting))
}

// isRead says whether a response is that of a request that changes nothing.
func isRead(r *kvpb.Response) bool {
	switch r.Result.(type) {
	case *kvpb.Response_Get, *kvpb.Response_BatchGet, *kvpb.Response_Scan, *kvpb.Response_MergeScan,
		*kvpb.Response_MultiGet, *kvpb.Response_Count, *kvpb.Response_Changes,
		*kvpb.Response_InspectTransactions, *kvpb.Response_SlowRequests:
		return true
	}
	return false
}

// heldLocked returns how many bytes of memory are taken by requests without response and by
// responses that are not sent. A response of which the connection has written only a part counts
// until all of it is written.
func (ss *serverStream) heldLocked() int {
	return ss.bytes + ss.out.PendingLocked() + ss.out.UnsentLocked()
}

// coverLocked takes from the budget as much memory as the stream holds. If the budget has less, the
// stream is not read until it has enough (hasRoomLocked).
func (ss *serverStream) coverLocked() {
	held := ss.heldLocked()
	ss.uncovered = !ss.memory.Cover(held)
	ss.memory.Uncover(held)
}

// gather makes the answers to a message wait for each other while the reader works on the message,
// unless the stream's goroutine is quicker. That goroutine is not woken for a message of few
// requests, unless their work takes long (handoff.look).
func (ss *serverStream) gather(self *reader, requests []*kvpb.Request) {
	ss.out.Lock()
	defer ss.out.Unlock()
	ss.working = self
	if ss.few = len(requests) <= fewRequests; !ss.few {
		return
	}
	ss.low, ss.high = requests[0].Id, requests[0].Id
	for _, q := range requests[1:] {
		ss.low, ss.high = min(ss.low, q.Id), max(ss.high, q.Id)
	}
}

// waitNoLonger has the gathered answers sent, and later ones as they come.
func (ss *serverStream) waitNoLonger() {
	ss.out.Lock()
	ss.few = false
	ss.out.Unlock()
	ss.out.Wake()
}

// sendGathered ends gathering, and sends the gathered answers.
func (ss *serverStream) sendGathered(self *reader) {
	ss.out.Lock()
	if ss.working == self {
		ss.working = nil
	}
	ss.out.UnlockAndSend(len(ss.inFlight) <= directReplies || ss.out.QuietLocked())
}

// failed reports a reply that could not be sent because the caller made a mistake.
func (ss *serverStream) failed(id uint64, err error) {
	ss.server.metrics.badReplies.Inc()
	ss.server.config.Logger.Error("response dropped",
		"client", fmt.Sprintf("%016x", ss.turn.client), "request", id, "error", err)
}

// tagResponses is the field number and wire type of BatchResponse.responses.
const tagResponses = 1<<3 | 2

// directReplies is the number of other requests in flight up to which the replying goroutine sends
// a response itself, at once.
const directReplies = 1

// fewRequests is the number of requests in a message up to which they are answered together. They
// mostly belong to one caller, which waits for all of them.
const fewRequests = 4

// hasRoomLocked reports whether to read on. A stream with nothing in flight always has room, so
// that one large request passes.
func (ss *serverStream) hasRoomLocked() bool {
	config := &ss.server.config
	return len(ss.inFlight) < config.MaxInFlight &&
		ss.bytes+ss.out.PendingLocked() < config.MaxInFlightBytes &&
		(!ss.uncovered || ss.heldLocked() == 0)
}

// isDoneLocked reports whether all requests have been answered, and the answers are given to the
// connection.
func (ss *serverStream) isDoneLocked() bool {
	return len(ss.inFlight) == 0 && ss.out.PendingLocked() == 0 && !ss.out.SendingLocked()
}

// closed reports whether no further answer can be sent.
func (ss *serverStream) closed() bool {
	ss.out.Lock()
	defer ss.out.Unlock()
	return ss.out.ClosedLocked()
}

// wait returns when the condition holds, or with an error when the stream ends first.
func (ss *serverStream) wait(conditionLocked func() bool) error {
	for {
		ss.out.Lock()
		ss.waiting = !conditionLocked() && !ss.out.ClosedLocked()
		waiting := ss.waiting
		ss.out.Unlock()
		if !waiting {
			return nil
		}
		select {
		case <-ss.room:
		case <-ss.ctx.Done():
			return status.FromContextError(ss.ctx.Err()).Err()
		}
	}
}

func (ss *serverStream) signalRoomLocked() {
	if ss.waiting {
		select {
		case ss.room <- struct{}{}:
		default:
		}
	}
}

// giveBack releases all the memory of a stream that is over.
func (ss *serverStream) giveBack() {
	ss.conn.GiveBack()
	ss.out.Lock()
	defer ss.out.Unlock()
	ss.memory.Close()
	for _, h := range ss.held {
		h.claim.Give()
	}
	ss.held = nil
}
