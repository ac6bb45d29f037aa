package direct_test

import (
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemarkdb/tidemark/kv/coord/direct"
)

// BenchmarkRenewals renews leases on one stream, past gRPC and by gRPC, as a client does with many
// of them: each renewal costs what client and server take together.
func BenchmarkRenewals(b *testing.B) {
	addresses, _ := startCore(b, 1)
	by := ready(b, addresses)
	past, calls := open(b, direct.Config{}, clientv3.Config{Endpoints: addresses})
	await(b, past, "a direct connection", func() bool { return calls.Server() != "" })
	const leases = 10_000
	var granting sync.WaitGroup
	for first := range 64 {
		granting.Go(func() {
			for id := first; id < leases; id += 64 {
				if _, err := pb.NewLeaseClient(past.ActiveConnection()).LeaseGrant(b.Context(),
					&pb.LeaseGrantRequest{ID: int64(id + 1), TTL: 3600}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	granting.Wait()
	for _, way := range []struct {
		name   string
		client *clientv3.Client
	}{{"direct", past}, {"gRPC", by}} {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			stream, err := pb.NewLeaseClient(way.client.ActiveConnection()).LeaseKeepAlive(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			var sending sync.WaitGroup
			sending.Go(func() {
				for n := range b.N {
					if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(n%leases + 1)}); err != nil {
						b.Error(err)
						return
					}
				}
			})
			for range b.N {
				if r, err := stream.Recv(); err != nil || r.TTL != 3600 {
					b.Fatal(r, err)
				}
			}
			sending.Wait()
			if err := stream.CloseSend(); err != nil {
				b.Error(err)
			}
		})
	}
}
