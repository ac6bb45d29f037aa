package etcdapi

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Answers bounds the memory of answers that are on their way to clients, over all calls. rpc.Answers
// is one.
type Answers interface {
	// Bound is what is handed to gRPC in place of an answer of a size, or why there is no room for it:
	// an error of gRPC.
	Bound(ctx context.Context, answer proto.Message, size int) (any, error)
	// Wait is Bound for a message of a stream: it waits for room.
	Wait(ctx context.Context, message proto.Message, size int) (any, error)
}

// bound counts an answer, if it may be large.
func (b *backend) bound(ctx context.Context, answer any) (any, error) {
	m, ok := answer.(proto.Message)
	if b.Answers == nil || !ok || !mayBeLarge(m) {
		return answer, nil
	}
	return b.Answers.Bound(ctx, m, proto.Size(m))
}

// mayBeLarge tells answers that are surely small from others, since it takes time to count.
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
	case *pb.LeaseGrantResponse, *pb.LeaseRevokeResponse, *pb.CompactionResponse, *pb.StatusResponse:
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
