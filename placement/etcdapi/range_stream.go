package etcdapi

import (
	"bytes"
	"math"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/translate"
)

// firstChunk is how many pairs a stream reads first, while their size is unknown.
const firstChunk = 16

// RangeStream implements etcdserverpb.KVServer: a range in chunks of about MaxRequestBytes, all at
// one revision. The last chunk has the header, the count, and whether there are more pairs than the
// limit.
func (s *kvServer) RangeStream(
	r *pb.RangeRequest, stream grpc.ServerStreamingServer[pb.RangeStreamResponse],
) error {
	if err := translate.CheckRangeStream(r); err != nil {
		return err
	}
	ctx := stream.Context()
	if !r.Serializable {
		if err := s.Confirm(ctx); err != nil {
			return err
		}
	}
	who, err := s.Identify(ctx)
	if err != nil {
		return err
	}
	r = proto.CloneOf(r)
	if r.Limit <= 0 {
		r.Limit = math.MaxInt64
	}
	left, size := r.Limit, int64(firstChunk)
	newest, count := int64(0), int64(0)
	for {
		r.Limit = min(left, size)
		q := translate.ToRange(r)
		q.Count = newest == 0 // once is enough, because all chunks have the same revision
		chunk, release, err := s.readRange(ctx, who, q)
		// A client may read a chunk slowly, and must not keep others from reading meanwhile.
		release()
		if err != nil {
			return err
		}
		if newest == 0 {
			newest, count = chunk.Header.Revision, chunk.Count
			if r.Revision <= 0 {
				r.Revision = newest
			}
		}
		n := int64(len(chunk.Kvs))
		left -= n
		last := !chunk.More || left == 0
		answer := &pb.RangeResponse{Kvs: chunk.Kvs}
		if last {
			answer.Header = s.Header(uint64(newest))
			answer.More, answer.Count = chunk.More, count
		}
		if err := stream.Send(&pb.RangeStreamResponse{RangeResponse: answer}); err != nil || last {
			return err
		}
		r.Key = append(bytes.Clone(chunk.Kvs[n-1].Key), 0)
		size = max(1, n*int64(s.MaxRequestBytes)/int64(max(1, proto.Size(answer))))
		size = min(size, 8*n)
	}
}
