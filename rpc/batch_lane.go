package rpc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// A client's requests and their answers move to a lane too (lane.go), once the stream has proved to be worth another connection. The client
// half-closes the stream when its requests have moved, the server's answers move when it sees that: so requests keep their order, and
// the client reads from both. What the stream ends with ends the lane, and the other way round.
//
// A request that went out on a lane may wait for its answer for as long as its caller likes, and a server that has too much to do stops reading.
// So nothing breaks a lane whose other side does not acknowledge: whoever waits finds that out (route's watchdog), or gRPC does, beside it.

const (
	// laneAfter is how many answers a stream has brought before its client makes a lane.
	laneAfter = 32
	// A lane that nobody uses shows every laneKeepalive whether it is still there.
	laneKeepalive = 15 * time.Second
)

// moveToLane moves the requests that are sent from now on to a lane, if the server offers one, and reads answers from it until it ends.
func (s *clientStream) moveToLane(stream grpc.ClientStream, broke context.CancelCauseFunc) {
	header, err := stream.Header()
	tokens := header.Get(laneKey)
	if err != nil || len(tokens) != 1 {
		return
	}
	b := s.conn
	lane, err := b.config.Dialer.openLane(stream.Context(), b.config.Address, tokens[0])
	if err != nil {
		return // the stream carries everything
	}
	defer lane.Close()
	if tcp, ok := lane.(*net.TCPConn); ok {
		// Without it a lane that is gone shows when it is used.
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: laneKeepalive, Interval: laneKeepalive / 3, Count: 3})
	}
	defer context.AfterFunc(stream.Context(), func() { _ = lane.Close() })()
	made := time.Now()
	if s.out.replace(&laneSender{conn: lane}) {
		// Its error is the stream's, which its receiver hears of.
		_ = stream.CloseSend()
	}
	var done []*call
	var batch kvpb.BatchResponse
	err = readLane(lane, func(message []byte) error {
		responses := batch.Responses[:0]
		batch.Reset() // decoding appends, also to the fields that it does not know
		batch.Responses = responses
		if err := batch.UnmarshalVTUnsafe(message); err != nil {
			return err
		}
		done = s.dispatch(batch.Responses, done[:0])
		clear(done)
		clear(batch.Responses)
		return nil
	})
	if stream.Context().Err() != nil {
		return
	}
	b.laneRest.broke(made)
	broke(status.Error(codes.Unavailable, fmt.Sprintf("the stream's lane broke: %v", err)))
}

// source is where a server reads a client's requests: the stream, or its lane.
type source interface {
	RecvMsg(m any) error
	Context() context.Context
}

// laneSource reads requests from a lane.
type laneSource struct {
	ctx    context.Context
	reader *bufio.Reader
}

// Context implements source: it is the stream's.
func (l *laneSource) Context() context.Context { return l.ctx }

// RecvMsg implements source. A lane that ends has no more to say than one that breaks.
func (l *laneSource) RecvMsg(m any) error {
	message, err := nextMessage(l.reader)
	if err == nil {
		if err = unmarshalOwned(message, m.(*kvpb.BatchRequest)); err == nil {
			return nil
		}
	}
	if ended := l.ctx.Err(); ended != nil {
		return status.FromContextError(ended).Err()
	}
	return status.Errorf(codes.Unavailable, "the stream's lane broke: %v", err)
}

// errNoLane says that a client that sends nothing more on its stream has made no lane.
var errNoLane = errors.New("there is no lane")

// takeLane goes over to the lane that the client has made, with the answers, and says where to read on. It is called once, when the stream
// has been read to its end.
func (ss *serverStream) takeLane(ctx context.Context) (source, error) {
	select {
	case lane := <-ss.lanes:
		ss.lane.Store(&lane)
		context.AfterFunc(ctx, func() { _ = lane.Close() })
		ss.out.replace(&laneSender{conn: lane}) // if the stream is over, reading says so
		return &laneSource{ctx: ctx, reader: bufio.NewReaderSize(lane, laneBuffer)}, nil
	default:
		return nil, errNoLane
	}
}

// closeLane ends the lane, if there is one: nothing waits for it any more.
func (ss *serverStream) closeLane() {
	if lane := ss.lane.Load(); lane != nil {
		_ = (*lane).Close()
	}
}
