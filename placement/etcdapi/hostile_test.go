package etcdapi

import (
	"context"
	"crypto/rand"
	mathrand "math/rand/v2"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Whatever a client sends is answered or refused, with an error that clients know.
func FuzzRequests(f *testing.F) {
	q := &requests{Rand: mathrand.New(mathrand.NewPCG(3, 3)), b: &both{revision: 9}}
	for range 50 {
		for kind, request := range []proto.Message{q.topTxn(), q.readRange(), q.put(q.key()),
			q.compaction(), &pb.DeleteRangeRequest{Key: q.key(), RangeEnd: q.end()}} {
			data, err := proto.Marshal(request)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(byte(kind), data)
		}
	}
	store := newLone(f)
	services, err := New(Config{Store: store, Cluster: &alone{}, Random: rand.Reader})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, kind byte, data []byte) {
		ctx := context.Background()
		var err error
		parse := func(m proto.Message) bool { return proto.Unmarshal(data, m) == nil }
		switch kind % 5 {
		case 0:
			if r := (&pb.TxnRequest{}); parse(r) {
				_, err = services.KV.Txn(ctx, r)
			}
		case 1:
			if r := (&pb.RangeRequest{}); parse(r) {
				_, err = services.KV.Range(ctx, r)
			}
		case 2:
			if r := (&pb.PutRequest{}); parse(r) {
				_, err = services.KV.Put(ctx, r)
			}
		case 3:
			if r := (&pb.CompactionRequest{}); parse(r) {
				_, err = services.KV.Compact(ctx, r)
			}
		case 4:
			if r := (&pb.DeleteRangeRequest{}); parse(r) {
				_, err = services.KV.DeleteRange(ctx, r)
			}
		}
		if code := status.Code(err); code == codes.Unknown || code == codes.Internal {
			t.Error(err)
		}
	})
}
