package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

const (
	// writePiece is how much of an answer is written at a time, within WriteTimeout.
	writePiece = 64 << 10
	// endTimeout is how long a write under way may still take when its call has ended.
	endTimeout = time.Second
)

var marshal = protojson.MarshalOptions{UseProtoNames: true}

// exchange is a request and its answer.
type exchange struct {
	*Handler
	response http.ResponseWriter
	control  *http.ResponseController
	request  *http.Request
	party    string
	body     *body

	// ended is set when the call has ended. Code that sets a deadline checks it afterwards.
	ended atomic.Bool
	// receiving is held by the goroutine that reads the body.
	receiving sync.Mutex
	// sending is held by the goroutine that writes, and guards the fields below.
	sending sync.Mutex
	begun   bool
	broken  error
}

func newExchange(h *Handler, w http.ResponseWriter, r *http.Request) *exchange {
	x := &exchange{Handler: h, response: w, control: http.NewResponseController(w), request: r}
	x.party = h.config.Party(r, peerOf(r).Addr)
	x.body = newBody(x)
	return x
}

// errEnded is the error of using a stream whose call has ended.
var errEnded = status.Error(codes.Canceled, "the call has ended")

// readWithin bounds the time in which the client must send; 0: no more time. The caller holds
// receiving. Errors of setting deadlines are ignored: only responses in tests do not support them.
func (x *exchange) readWithin(limit time.Duration) {
	var until time.Time
	if limit > 0 {
		until = time.Now().Add(limit)
	}
	_ = x.control.SetReadDeadline(until)
	// At the end of the body package http begins to wait for the client's next request. With an
	// expired deadline it would take the connection for lost, and cancel the contexts of all its
	// requests.
	if x.ended.Load() && !x.body.over {
		x.readNoMore()
	}
}

// readNoMore makes a goroutine that reads the body return.
func (x *exchange) readNoMore() { _ = x.control.SetReadDeadline(time.Now()) }

// writeWithin bounds the time in which the client must read.
func (x *exchange) writeWithin(limit time.Duration) {
	_ = x.control.SetWriteDeadline(time.Now().Add(limit))
	if x.ended.Load() {
		_ = x.control.SetWriteDeadline(time.Now().Add(endTimeout))
	}
}

// end waits until no goroutine uses the request any more, and refuses later uses. The error, if the
// call of a stream has ended with one, is sent as the last message. A connection on which a part of
// a message was written is closed.
func (x *exchange) end(last error) {
	x.ended.Store(true)
	if !x.receiving.TryLock() {
		x.readNoMore()
		x.receiving.Lock()
	}
	x.body.refused = errEnded
	x.body.free()
	if !x.body.over {
		// Data that has arrived is read, but not waited for: package http must not see the end of
		// the body after end has returned, because it would then begin to wait for the end of the
		// connection.
		x.readNoMore()
		_ = x.body.discard()
	}
	x.receiving.Unlock()
	if !x.sending.TryLock() {
		x.writeWithin(endTimeout)
		x.sending.Lock()
	}
	defer x.sending.Unlock()
	if last != nil {
		s := statusOf(last)
		if text, err := render(s.Proto()); err == nil {
			x.writeLocked(httpStatus(s.Code()), wrapped("error", text))
		}
	}
	if x.broken != nil {
		_ = x.control.SetWriteDeadline(time.Now())
	} else {
		_ = x.control.SetWriteDeadline(time.Time{})
	}
	x.broken = errEnded
}

// receive reads the next message of the request.
func (x *exchange) receive(into any) error {
	x.receiving.Lock()
	defer x.receiving.Unlock()
	if x.body.refused != nil {
		return x.body.refused
	}
	x.body.free()
	return x.body.next(into)
}

// unary serves a call with one request and one answer.
func (x *exchange) unary(ctx context.Context, m grpc.MethodDesc, service any) error {
	answer, err := m.Handler(service, ctx, x.one, nil)
	if err != nil {
		x.fail(err)
		return err
	}
	text, sent, err := renderCounted(answer)
	defer sent()
	if err != nil {
		x.fail(err)
		return err
	}
	x.sending.Lock()
	defer x.sending.Unlock()
	x.writeLocked(http.StatusOK, text)
	return nil
}

// one decodes the only message of a request. A request without a body is empty.
func (x *exchange) one(into any) error {
	x.receiving.Lock()
	defer x.receiving.Unlock()
	if err := x.body.next(into); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return x.body.discard()
}

// render writes a message as JSON.
func render(answer any) ([]byte, error) {
	m, ok := answer.(proto.Message)
	if !ok {
		return nil, status.Errorf(codes.Internal, "%T is no message", answer)
	}
	text, err := marshal.Marshal(m)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "marshal an answer: %v", err)
	}
	// The package varies its spaces on purpose.
	var compact bytes.Buffer
	compact.Grow(len(text))
	if err := json.Compact(&compact, text); err != nil {
		return nil, status.Errorf(codes.Internal, "marshal an answer: %v", err)
	}
	return compact.Bytes(), nil
}

// renderCounted is render for a message that may be Counted. The caller calls sent when the text
// was written.
func renderCounted(answer any) (text []byte, sent func(), err error) {
	text, err = render(answer)
	c, counts := answer.(Counted)
	if !counts {
		return text, func() {}, err
	}
	if err == nil {
		c.Becomes(len(text))
	}
	return text, c.Sent, err
}

// fail answers with an error.
func (x *exchange) fail(err error) {
	x.sending.Lock()
	defer x.sending.Unlock()
	s := statusOf(err)
	text, failed := render(s.Proto())
	if failed != nil {
		text = []byte(`{"code":13,"message":"an error that cannot be told"}`)
	}
	if s.Code() == codes.Unauthenticated {
		x.response.Header().Set("WWW-Authenticate", headerText(s.Message()))
	}
	x.writeLocked(httpStatus(s.Code()), text)
}

// bodyOver reports whether the whole body has been read.
func (x *exchange) bodyOver() bool {
	if !x.receiving.TryLock() {
		return false // a goroutine still reads
	}
	defer x.receiving.Unlock()
	return x.body.over
}

// writeLocked writes a part of the answer, with the status if it is the first part.
func (x *exchange) writeLocked(code int, text []byte) {
	if x.broken != nil {
		return
	}
	if !x.begun {
		x.begun = true
		if !x.bodyOver() {
			// The rest of the request is not waited for (end). Package http may take the connection
			// for lost then, and would cancel the contexts of later requests on it.
			x.response.Header().Set("Connection", "close")
		}
		x.response.Header().Set("Content-Type", "application/json")
		x.response.WriteHeader(code)
	}
	for first := true; len(text) > 0 && x.broken == nil; first = false {
		if !first && x.ended.Load() {
			x.broken = errEnded
			return
		}
		n := min(len(text), writePiece)
		x.writeWithin(x.config.WriteTimeout)
		_, x.broken = x.response.Write(text[:n])
		text = text[n:]
	}
}

// stream serves a call in which either side has any number of messages, and returns its error.
func (x *exchange) stream(ctx context.Context, d grpc.StreamDesc, service any) error {
	if d.ClientStreams {
		// The answer begins before the request has ended.
		_ = x.control.EnableFullDuplex()
	}
	return d.Handler(service, &serverStream{exchange: x, ctx: ctx, many: d.ClientStreams})
}

// wrapped returns a line of a stream.
func wrapped(name string, text []byte) []byte {
	line := make([]byte, 0, len(text)+16)
	line = append(line, `{"`+name+`":`...)
	return append(append(line, text...), "}\n"...)
}

// serverStream is a stream as its service sees it.
type serverStream struct {
	exchange *exchange
	ctx      context.Context
	// many is set if the client may send several messages, received when it has sent its only one.
	many, received bool
}

var _ grpc.ServerStream = (*serverStream)(nil)

// Context implements grpc.ServerStream.
func (s *serverStream) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream.
func (s *serverStream) RecvMsg(into any) error {
	if s.many {
		return s.exchange.receive(into)
	}
	if s.received {
		return io.EOF
	}
	s.received = true
	return s.exchange.one(into)
}

// SendMsg implements grpc.ServerStream.
func (s *serverStream) SendMsg(message any) error {
	text, sent, err := renderCounted(message)
	defer sent()
	if err != nil {
		return err
	}
	x := s.exchange
	x.sending.Lock()
	defer x.sending.Unlock()
	x.writeLocked(http.StatusOK, wrapped("result", text))
	if x.broken == nil {
		x.broken = x.control.Flush()
	}
	if x.broken != nil {
		return status.Error(codes.Canceled, x.broken.Error())
	}
	return nil
}

// SetHeader implements grpc.ServerStream. Headers are dropped.
func (*serverStream) SetHeader(metadata.MD) error { return nil }

// SendHeader implements grpc.ServerStream.
func (*serverStream) SendHeader(metadata.MD) error { return nil }

// SetTrailer implements grpc.ServerStream.
func (*serverStream) SetTrailer(metadata.MD) {}
