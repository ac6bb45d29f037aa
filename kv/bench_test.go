package kv

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// idleNode answers at once: what a benchmark against it costs is the client, the streams and gRPC.
func idleNode(b *testing.B) *Client {
	c := newFakeCluster(b, 1)
	n := c.nodes[1]
	n.kill()
	l, err := c.network.Listen(n.addr)
	if err != nil {
		b.Fatal(err)
	}
	n.server = grpc.NewServer(rpc.ServerOptions(rpc.ServerConfig{})...)
	value := make([]byte, 256)
	kvpb.RegisterKVServer(n.server, rpc.NewBatchServer(rpc.BatchServerConfig{
		Handle: func(_ uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) {
			for _, r := range batch {
				now := rpc.ToTimestamp(n.clock.Now())
				out := &kvpb.Response{Id: r.Id, Now: now}
				switch r.Command.(type) {
				case *kvpb.Request_Put:
					out.Result = &kvpb.Response_Put{Put: &kvpb.PutResponse{Version: now}}
				case *kvpb.Request_Get:
					out.Result = &kvpb.Response_Get{Get: &kvpb.GetResponse{Found: true, Value: value, Version: now}}
				default:
					out.Result = &kvpb.Response_NowResult{NowResult: &kvpb.NowResponse{Node: 1}}
				}
				reply(out)
			}
		},
	}))
	clusterpb.RegisterClusterServer(n.server, n)
	n.served = make(chan struct{})
	go func() { defer close(n.served); _ = n.server.Serve(l) }()
	c.addKeyspace("k", 8)
	client := c.open()
	b.Cleanup(func() { client.Close(); c.close() })
	return client
}

func benchmark(b *testing.B, callers int, f func(ctx context.Context, ks *Keyspace, key []byte) error) {
	ks := idleNode(b).Keyspace("k")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.ReportAllocs()
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			key := []byte{'k', byte(i)}
			for left.Add(-1) >= 0 {
				if err := f(ctx, ks, key); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

var benchValue = make([]byte, 256)

func put(ctx context.Context, ks *Keyspace, key []byte) error {
	_, err := ks.Put(ctx, key, benchValue)
	return err
}

func get(ctx context.Context, ks *Keyspace, key []byte) error {
	_, err := ks.Get(ctx, key)
	return err
}

func BenchmarkPut1(b *testing.B)   { benchmark(b, 1, put) }
func BenchmarkPut256(b *testing.B) { benchmark(b, 256, put) }
func BenchmarkGet1(b *testing.B)   { benchmark(b, 1, get) }
func BenchmarkGet64(b *testing.B)  { benchmark(b, 64, get) }
