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

// Fields of gRPC's metadata that a kvpb.Call has fields for.
const (
	tokenKey         = "token"
	requireLeaderKey = "hasleader"
)

// maxCallAnswerBytes bounds the encoded answer of a call: a message can hold no more.
const maxCallAnswerBytes = wire.MaxMessageBytes - 4<<10

// enterCall counts a call that is to begin; or says why it does not.
func (ss *serverStream) enterCall(c checkedCall) *kvpb.Error {
	if c.refusal != nil {
		return c.refusal
	}
	// The request counts as in flight already, so that BatchServer.Drain, which comes later than
	// CallServer.Drain, waits for the call if this does not refuse it.
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

// heldAnswer is what the answer to a call holds until the outbox's chunk of that number is sent.
type heldAnswer struct {
	chunk uint64
	claim *limit.Claim
}

// progressLocked is told when something was sent. What the connection has taken over and not
// written yet takes memory as before, however long that is for a client that does not read.
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

// serverCall is a call that is under way.
type serverCall struct {
	server *CallServer
	stream *serverStream
	id     uint64
	method *calledMethod
	// message is the encoded request until that is decoded. It aliases the message that brought it,
	// with all other requests of that.
	message       []byte
	token         string
	requireLeader bool
	// deadline is zero if there is none.
	deadline time.Time
}

// serve serves the call in the stream's context of calls, or one made of that.
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

// asStatus is an error with a status, as gRPC makes one of what a handler returns.
func asStatus(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(err).Err()
}

// contextOfCalls is the context of a stream's calls.
func contextOfCalls(ctx context.Context, from *peer.Peer) context.Context {
	ctx = peer.NewContext(ctx, from)
	return limit.Leaves(metadata.NewIncomingContext(ctx, metadata.MD{}))
}
