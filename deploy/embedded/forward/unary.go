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
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/coordpb"
	"github.com/tidemarkdb/tidemark/rpc/limit"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// reads are the methods that change nothing.
var reads = map[string]bool{
	pb.KV_Range_FullMethodName:                 true,
	pb.Lease_LeaseTimeToLive_FullMethodName:    true,
	pb.Lease_LeaseLeases_FullMethodName:        true,
	pb.Cluster_MemberList_FullMethodName:       true,
	pb.Maintenance_Status_FullMethodName:       true,
	pb.Maintenance_Hash_FullMethodName:         true,
	pb.Maintenance_HashKV_FullMethodName:       true,
	pb.Auth_Authenticate_FullMethodName:        true,
	pb.Auth_AuthStatus_FullMethodName:          true,
	pb.Auth_UserGet_FullMethodName:             true,
	pb.Auth_UserList_FullMethodName:            true,
	pb.Auth_RoleGet_FullMethodName:             true,
	pb.Auth_RoleList_FullMethodName:            true,
	coordpb.Permissions_Get_FullMethodName:     true,
	coordpb.Import_State_FullMethodName:        true,
	coordpb.Clock_Read_FullMethodName:          true,
	grpc_health_v1.Health_Check_FullMethodName: true,
	grpc_health_v1.Health_List_FullMethodName:  true,
	"/v3electionpb.Election/Leader":            true,
}

// waits are the methods whose calls may wait for what other clients do.
var waits = map[string]bool{
	"/v3lockpb.Lock/Lock":             true,
	"/v3electionpb.Election/Campaign": true,
}

// changesNothing says that a call may be made twice.
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

// fate is what has become of a request at a member.
type fate uint8

const (
	// answered: the member has answered, with an error perhaps; or there is no answer, and the request
	// may have been executed.
	answered fate = iota
	// notDone: nothing was done, so another member may be asked.
	notDone
)

// trusted is the codec of calls to members. Answers of members are not checked for the number of
// their parts: a client's request that a member has let pass may have that many.
type trusted struct{ wire.Codec }

// Unmarshal implements encoding.CodecV2.
func (c trusted) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return c.Codec.Unmarshal(data, v)
	}
	return proto.Unmarshal(data.Materialize(), m)
}

// maxAnswerBytes bounds a message of a member; it is what servers send at most.
const maxAnswerBytes = 256 << 20

// largest bounds a message of a member that answers a method. What can never be on its way from
// this server is not taken in either. What has an effect is always to be answered.
func (f *Forwarder) largest(m *method) int {
	if m.reads || m.stream {
		return int(min(f.config.Answers.Limit(), maxAnswerBytes))
	}
	return maxAnswerBytes
}

// tooLarge begins what gRPC says of a message above the bound of its receiver.
const tooLarge = "grpc: received message larger than max"

// explained is an error of a member with what can be done about it, as far as it is of this server.
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

// unaryHandler passes calls of one request and one answer on.
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
		return nil, err
	}
	if m.reads {
		return f.config.Answers.Bound(ctx, answer, proto.Size(answer))
	}
	return f.config.Answers.Count(ctx, answer, proto.Size(answer)), nil
}

// ask makes a call of a member, if it can be begun by the time last.
func (f *Forwarder) ask(ctx context.Context, l *lane, address string, m *method,
	request proto.Message, last time.Time) (proto.Message, fate, error) {
	stream, end, of, err := l.newStream(ctx, address, m, &grpc.StreamDesc{StreamName: m.name}, last,
		f.largest(m))
	defer end()
	if err != nil {
		return nil, of, err
	}
	if err := stream.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
		return nil, answered, err // it cannot be sent to any member
	}
	answer := m.output.New().Interface()
	err = stream.RecvMsg(answer)
	return answer, fateOf(changesNothing(m, request), err, stream.Trailer()), explained(err)
}

// drained is what gRPC says of a call that a server which ends has not begun.
const drained = "the stream is rejected because server is draining the connection"

// fateOf judges the end of a call that was sent. twice: it may be made twice.
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

// notSent is what a client hears when no member was there for a request. Clients of etcd for Go
// repeat what changes something after one text only, which says that it was not sent.
func (f *Forwarder) notSent(m *method) error {
	if m.reads {
		return f.config.Refusal()
	}
	return coordpb.ErrNotSent
}

// asStatus is an error as gRPC tells it.
func asStatus(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(err).Err()
}
