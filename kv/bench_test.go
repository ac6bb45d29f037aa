package kv

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// idleNode answers at once: what a benchmark against it costs is the client, the streams and gRPC.
func idleNode(b *testing.B, options ...Option) *Client {
	c := newFakeCluster(b, 1)
	n, value := c.Nodes[1], make([]byte, 256)
	n.Kill()
	n.Answer = func(r *kvpb.Request) *kvpb.Response {
		now := wire.ToTimestamp(n.Clock.Now())
		out := &kvpb.Response{Now: now}
		switch r.Command.(type) {
		case *kvpb.Request_Put:
			out.Result = &kvpb.Response_Put{Put: &kvpb.PutResponse{Version: now}}
		case *kvpb.Request_Get:
			out.Result = &kvpb.Response_Get{Get: &kvpb.GetResponse{Found: true, Value: value,
				Version: now}}
		default:
			out.Result = &kvpb.Response_NowResult{NowResult: &kvpb.NowResponse{Node: 1}}
		}
		return out
	}
	n.Start()
	c.AddKeyspace("k", 8)
	client := c.open(options...)
	b.Cleanup(func() { client.Close(); c.Close() })
	return client
}

func benchmark(b *testing.B, callers int,
	f func(ctx context.Context, ks *Keyspace, key []byte) error) {
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
