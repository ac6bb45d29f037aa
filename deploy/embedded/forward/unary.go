package forward

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/limit"
)

// changesNothing reports that a call may be made twice.
func changesNothing(m *method, request proto.Message) bool {
	switch r := request.(type) {
	case *pb.AlarmRequest:
		return r.Action == pb.AlarmRequest_GET
	case *pb.TxnRequest:
		return onlyReads(r.Success) && onlyReads(r.Failure)
	}
	return m.reads
}

func onlyReads(operations []*pb.RequestOp) bool {
	for _, o := range operations {
		switch r := o.GetRequest().(type) {
		case *pb.RequestOp_RequestRange:
		case *pb.RequestOp_RequestTxn:
			if !changesNothing(nil, r.RequestTxn) {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// tooLarge is the beginning of gRPC's error for a message above the receiver's bound.
const tooLarge = "grpc: received message larger than max"

// explained adds advice to an error of a member, if this server has any.
func explained(err error) error {
	if s, ok := status.FromError(err); ok && s.Code() == codes.ResourceExhausted &&
		strings.HasPrefix(s.Message(), tooLarge) {
		return status.Errorf(codes.ResourceExhausted, "etcdserver: this server, which passes calls on, "+
			"has too little memory for the answer of a member of the core (%s bytes): ask for less at a "+
			"time, ask a member of the core, or give this server a higher --memory-limit",
			strings.Trim(strings.TrimPrefix(s.Message(), tooLarge), " ()"))
	}
	return err
}

// unaryHandler forwards calls with one request and one answer.
func (f *Forwarder) unaryHandler(m *method) grpc.MethodHandler {
	return func(_ any, ctx context.Context, decode func(any) error,
		interceptor grpc.UnaryServerInterceptor) (any, error) {
		request := m.input.New().Interface()
		if err := decode(request); err != nil {
			return nil, err
		}
		handle := func(ctx context.Context, request any) (any, error) {
			return f.unary(ctx, m, request.(proto.Message))
		}
		if interceptor == nil {
			return handle(ctx, request)
		}
		return interceptor(ctx, request, &grpc.UnaryServerInfo{FullMethod: m.full}, handle)
	}
}

func (f *Forwarder) unary(ctx context.Context, m *method, request proto.Message) (any, error) {
	if f.config.Forwarded(ctx) {
		return nil, f.refuse(func(md metadata.MD) { _ = grpc.SetTrailer(ctx, md) })
	}
	if err := f.config.Answers.Room(ctx); err != nil {
		return nil, err
	}
	party, size := f.config.Party(ctx), limit.DecodedBytes(request)
	if most := f.requests.Most(); size > most {
		f.metrics.refused.Inc()
		return nil, limit.CallTooLarge(size, most)
	}
	if !f.requests.Take(party, size) {
		f.metrics.refused.Inc()
		return nil, errTooMany
	}
	defer f.requests.Give(party, size)
	l, leave, err := f.enter(party)
	if err != nil {
		return nil, err
	}
	defer leave()
	var answer proto.Message
	out, last, first := f.config.Outgoing(ctx), lastStart(ctx), ""
	if m.ofLeader {
		first = f.leading(out, l, last)
	}
	if failed := f.rounds(ctx, m, first, last, func(address string, all []string) bool {
		var of fate
		began := time.Now()
		answer, of, err = f.ask(out, l, address, m, request, last)
		if of == notDone {
			return false
		}
		f.members.ended(address, all, m, began, err)
		return true
	}); errors.Is(failed, errLocal) {
		description, service, _ := f.config.Local(m.service)
		return description.Methods[m.at].Handler(service, ctx, one(request), nil)
	} else if failed != nil {
		f.metrics.unsent.Inc()
		return nil, asStatus(failed)
	}
	f.metrics.passed.Inc()
	if err != nil {
		return nil, unrepeated(m, request, err)
	}
	if m.reads {
		return f.config.Answers.Bound(ctx, answer, proto.Size(answer))
	}
	return f.config.Answers.Count(ctx, answer, proto.Size(answer)), nil
}

// ask makes a call to a member, if the call can be sent by the time last.
func (f *Forwarder) ask(ctx context.Context, l *lane, address string, m *method,
	request proto.Message, last time.Time) (proto.Message, fate, error) {
	stream, end, of, err := l.newStream(ctx, address, m, &grpc.StreamDesc{StreamName: m.name}, last,
		f.largest(m))
	defer end()
	if err != nil {
		return nil, of, err
	}
	if err := stream.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
		return nil, answered, err // the request cannot be sent to any member
	}
	answer := m.output.New().Interface()
	err = stream.RecvMsg(answer)
	return answer, fateOf(changesNothing(m, request), err, stream.Trailer()), explained(err)
}

// unrepeated returns the error of a call for the client. etcd's client for Go repeats every call
// whose error says that a context has ended, unless its own has. The context of a call ends here
// when this server closes, too. So a call that may have changed something gets another error then.
func unrepeated(m *method, request proto.Message, err error) error {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded:
		if !changesNothing(m, request) {
			return rpctypes.ErrGRPCTimeout
		}
	}
	return err
}

// drained is gRPC's text for a call that a server which is shutting down has not begun.
const drained = "the stream is rejected because server is draining the connection"

// fateOf determines the fate of a call that was sent. twice: the call may be made twice.
func fateOf(twice bool, err error, trailer metadata.MD) fate {
	s, _ := status.FromError(err)
	switch {
	case err == nil:
		return answered
	case len(trailer.Get(refusedField)) > 0,
		s.Message() == rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner),
		s.Code() == codes.Unavailable && s.Message() == drained:
		return notDone
	case twice && s.Code() == codes.Unavailable && !strings.HasPrefix(s.Message(), "etcdserver:"):
		return notDone // the connection broke
	}
	return answered
}

// asStatus converts an error to gRPC's form.
func asStatus(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(err).Err()
}
