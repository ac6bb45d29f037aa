package etcdapi

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// benchKV is the KV service of a lone member with keys of 256 bytes, without gRPC.
func benchKV(b *testing.B, keys int) pb.KVServer {
	b.Helper()
	m := newLone(b)
	services, err := New(Config{Store: m.Store, Cluster: &alone{}, Random: rand.Reader})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(services.Close)
	for i := range keys {
		if _, err := services.KV.Put(b.Context(), &pb.PutRequest{Key: benchKey(i),
			Value: make([]byte, 256)}); err != nil {
			b.Fatal(err)
		}
	}
	return services.KV
}

// benchContext is that of a call without metadata.
func benchContext(b *testing.B) context.Context {
	ctx := metadata.NewIncomingContext(b.Context(), metadata.MD{})
	return peer.NewContext(ctx, &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}})
}

func benchKey(i int) []byte { return fmt.Appendf(nil, "key%016x", i) }

// BenchmarkRange reads one key.
func BenchmarkRange(b *testing.B) {
	const keys = 10_000
	kv := benchKV(b, keys)
	ctx := benchContext(b)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		if _, err := kv.Range(ctx, &pb.RangeRequest{Key: benchKey(n * 7919 % keys)}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPut writes one key.
func BenchmarkPut(b *testing.B) {
	const keys = 10_000
	kv := benchKV(b, keys)
	ctx := benchContext(b)
	value := make([]byte, 256)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		r := &pb.PutRequest{Key: benchKey(n * 7919 % keys), Value: value}
		if _, err := kv.Put(ctx, r); err != nil {
			b.Fatal(err)
		}
	}
}
