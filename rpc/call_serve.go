package rpc

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/limit"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Fields of gRPC's metadata that correspond to fields of a kvpb.Call.
const (
	tokenKey         = "token"
	requireLeaderKey = "hasleader"
)

// maxCallAnswerBytes bounds the encoded answer of a call, which must fit into a message.
const maxCallAnswerBytes = wire.MaxMessageBytes - 4<<10

// enterCall counts a call that is to begin, or returns the reason for refusing it.
func (ss *serverStream) enterCall(c checkedCall) *kvpb.Error {
	if c.refusal != nil {
		return c.refusal
	}
	// The request counts as in flight already. So if this check does not refuse the call,
	// BatchServer.Drain, which is called after CallServer.Drain, waits for it.
	if ss.server.config.Calls.draining.Load() {
		return &kvpb.Error{Code: kvpb.ErrorCode_INVALID_ARGUMENT,
			Message: "this server is closing: call another one"}
	}
	ss.out.Lock()
	defer ss.out.Unlock()
	if ss.calling >= maxStreamCalls {
		return &kvpb.Error{Code: kvpb.ErrorCode_OVERLOADED, Message: fmt.Sprintf(
			"%d calls of this stream are under way: wait for some of them", maxStreamCalls)}
	}
	ss.calling++
	return nil
}

// heldAnswer is memory that the answer to a call occupies until the given chunk of the outbox is
// sent.
type heldAnswer struct {
	chunk uint64
	claim *limit.Claim
}

// progressLocked is called when something was sent. Answers that the connection has taken and not
// written yet still occupy memory, however slowly the client reads.
func (ss *serverStream) progressLocked() {
	sent := 0
	for sent < len(ss.held) && ss.out.WrittenLocked(ss.held[sent].chunk) {
		ss.held[sent].claim.Give()
		sent++
	}
	if sent > 0 {
		ss.held = slices.Delete(ss.held, 0, sent)
	}
	ss.coverLocked()
	ss.signalRoomLocked()
}

// serverCall is a call under way.
type serverCall struct {
	server *CallServer
	stream *serverStream
	id     uint64
	method *calledMethod
	// message is the encoded request until it is decoded. It aliases, and so keeps, the whole
	// message that contained it.
	message       []byte
	token         string
	requireLeader bool
	// deadline is zero if the call has none.
	deadline time.Time
}

// serve serves the call in the stream's context of calls, or one derived from it.
func (c *serverCall) serve(ctx context.Context) {
	defer c.stream.calls.Done()
	if !c.deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, c.deadline)
		defer cancel()
	}
	if c.token != "" || c.requireLeader {
		fields := make(metadata.MD, 2)
		if c.token != "" {
			fields[tokenKey] = []string{c.token}
		}
		if c.requireLeader {
			fields[requireLeaderKey] = []string{"true"}
		}
		ctx = metadata.NewIncomingContext(ctx, fields)
	}
	answer, err := c.method.handler(c.method.service, ctx, c.decode, nil)
	c.answer(answer, err)
}

// decode decodes the request. It is called once.
func (c *serverCall) decode(request any) error {
	message := mem.BufferSlice{mem.SliceBuffer(c.message)}
	c.message = nil
	if err := (wire.Codec{}).Unmarshal(message, request); err != nil {
		return status.Errorf(codes.Internal, "request of %s: %v", c.method.name, err)
	}
	return nil
}

// answer hands the outcome to the stream.
func (c *serverCall) answer(answer any, err error) {
	outcome := &kvpb.CallAnswer{Better: c.server.config.Better()}
	var held *limit.Claim
	if err == nil {
		answer, held = limit.Unbound(answer)
	}
	if err == nil {
		m, ok := answer.(proto.Message)
		if !ok {
			err = status.Errorf(codes.Internal, "%s answers with %T", c.method.name, answer)
		} else if outcome.Message, err = proto.Marshal(m); err == nil &&
			len(outcome.Message) > maxCallAnswerBytes {
			err = status.Errorf(codes.ResourceExhausted, "the answer has %d bytes, which no message can "+
				"hold here: ask for less, or by gRPC", len(outcome.Message))
		}
	}
	if err != nil {
		outcome.Message = nil
		outcome.Status, err = proto.Marshal(status.Convert(asStatus(err)).Proto())
		if err != nil {
			outcome.Status, _ = proto.Marshal(status.New(codes.Internal, "status: "+err.Error()).Proto())
		}
	}
	c.stream.answer(&kvpb.Response{Id: c.id, Call: outcome}, held)
}

// asStatus converts an error to one with a status, as gRPC does with the error of a handler.
func asStatus(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(err).Err()
}

// contextOfCalls makes the context of a stream's calls.
func contextOfCalls(ctx context.Context, from *peer.Peer) context.Context {
	ctx = peer.NewContext(ctx, from)
	return limit.Leaves(metadata.NewIncomingContext(ctx, metadata.MD{}))
}
