package etcdapi

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// Answers bounds the memory of answers on their way to clients, over all calls.
// limit.ResponseBudget implements it.
type Answers interface {
	// Bound returns what is passed to gRPC in place of an answer of a size, or a gRPC error if
	// there is no room for it.
	Bound(ctx context.Context, answer proto.Message, size int) (any, error)
	// Room returns nil if more may be on its way to the client of a call. It takes nothing.
	Room(ctx context.Context) error
	// Count is Bound for an answer that must not be refused.
	Count(ctx context.Context, answer proto.Message, size int) any
	// Wait is Bound for a message of a stream: it waits for room. After its error (Unavailable)
	// etcd's clients resume a stream of watches, if the stream has not ended.
	Wait(ctx context.Context, message proto.Message, size int) (any, error)
}

// room refuses a call that would write, and whose answer may be large, while the client has not
// read its former answers. After the write it would be too late to refuse.
func (b *shared) room(ctx context.Context, request any) error {
	if b.Answers == nil {
		return nil
	}
	if writes, returns := effects(request); writes && returns {
		return b.Answers.Room(ctx)
	}
	return nil
}

// bound counts an answer, if it may be large.
//
// INVARIANT: a call that has written is not refused: clients take a refusal to mean that nothing
// was done.
func (b *shared) bound(ctx context.Context, request, answer any) (any, error) {
	m, ok := answer.(proto.Message)
	if b.Answers == nil || !ok || !mayBeLarge(m) {
		return answer, nil
	}
	if writes, _ := effects(request); writes {
		return b.Answers.Count(ctx, m, proto.Size(m)), nil
	}
	return b.Answers.Bound(ctx, m, proto.Size(m))
}

// effects reports whether a request writes, and whether its answer contains keys of a range, or
// former values. An unknown request may write.
func effects(request any) (writes, returns bool) {
	switch r := request.(type) {
	case *pb.RangeRequest:
		return false, !r.GetCountOnly()
	case *pb.PutRequest:
		return true, r.GetPrevKv()
	case *pb.DeleteRangeRequest:
		return true, r.GetPrevKv()
	case *pb.TxnRequest:
		for _, ops := range [][]*pb.RequestOp{r.GetSuccess(), r.GetFailure()} {
			for _, op := range ops {
				w, k := effectsOf(op)
				writes, returns = writes || w, returns || k
			}
		}
		return writes, returns
	case *coordpb.RenewAllRequest:
		return true, false
	case *coordpb.ReadClockRequest:
		return false, false
	case *pb.LeaseTimeToLiveRequest, *pb.LeaseLeasesRequest, *pb.AuthUserListRequest,
		*pb.AuthUserGetRequest, *pb.AuthRoleListRequest, *pb.AuthRoleGetRequest:
		return false, true
	}
	return true, false
}

func effectsOf(op *pb.RequestOp) (writes, returns bool) {
	switch op := op.GetRequest().(type) {
	case *pb.RequestOp_RequestRange:
		return effects(op.RequestRange)
	case *pb.RequestOp_RequestPut:
		return effects(op.RequestPut)
	case *pb.RequestOp_RequestDeleteRange:
		return effects(op.RequestDeleteRange)
	case *pb.RequestOp_RequestTxn:
		return effects(op.RequestTxn)
	}
	return false, false
}

// mayBeLarge excludes answers that are surely small, because counting takes time.
func mayBeLarge(m proto.Message) bool {
	const few, little = 64, 32 << 10
	switch m := m.(type) {
	case *pb.PutResponse:
		return m.PrevKv != nil
	case *pb.RangeResponse:
		size := 0
		for i, kv := range m.Kvs {
			if size += len(kv.Key) + len(kv.Value); i >= few || size > little {
				return true
			}
		}
		return false
	case *pb.LeaseGrantResponse, *pb.LeaseRevokeResponse, *pb.CompactionResponse, *pb.StatusResponse,
		*coordpb.RenewAllResponse, *coordpb.ReadClockResponse:
		return false
	}
	return true
}

// boundedStream counts the messages that a stream sends, and waits for room.
type boundedStream struct {
	grpc.ServerStream
	answers Answers
}

// SendMsg implements grpc.ServerStream.
func (s boundedStream) SendMsg(message any) error {
	switch m := message.(type) {
	case *pb.WatchResponse:
		if len(m.Events) == 0 {
			return s.ServerStream.SendMsg(message)
		}
	case *pb.LeaseKeepAliveResponse:
		return s.ServerStream.SendMsg(message)
	}
	m, ok := message.(proto.Message)
	if !ok {
		return s.ServerStream.SendMsg(message)
	}
	counted, err := s.answers.Wait(s.Context(), m, proto.Size(m))
	if err != nil {
		return err
	}
	return s.ServerStream.SendMsg(counted)
}
