package direct_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemarkdb/tidemark/kv/coord/direct"
)

// BenchmarkCalls makes calls of a server in this process, past gRPC and by gRPC: an operation costs
// what client and server take together.
func BenchmarkCalls(b *testing.B) {
	addresses, _ := startCore(b, 1)
	config := clientv3.Config{Endpoints: addresses}
	past, calls := open(b, direct.Config{}, config)
	await(b, past, "a direct connection", func() bool { return calls.Server() != "" })
	by, err := clientv3.New(config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = by.Close() })
	const keys = 10_000
	value := string(make([]byte, 256))
	key := func(n uint64) string { return fmt.Sprintf("key%016x", n*7919%keys) }
	for n := range uint64(keys) {
		if n%100 != 0 {
			continue
		}
		var ops []clientv3.Op
		for i := range uint64(100) {
			ops = append(ops, clientv3.OpPut(key(n+i), value))
		}
		if _, err := past.Txn(b.Context()).Then(ops...).Commit(); err != nil {
			b.Fatal(err)
		}
	}
	for _, way := range []struct {
		name   string
		client *clientv3.Client
	}{{"direct", past}, {"gRPC", by}} {
		for _, callers := range []int{1, 64, 256} {
			for kind, do := range map[string]func(n uint64) error{
				"get": func(n uint64) error {
					_, err := way.client.Get(b.Context(), key(n))
					return err
				},
				"put": func(n uint64) error {
					_, err := way.client.Put(b.Context(), key(n), value)
					return err
				},
			} {
				b.Run(fmt.Sprintf("%s/%s/callers=%d", kind, way.name, callers), func(b *testing.B) {
					b.ReportAllocs()
					var next atomic.Uint64
					var running sync.WaitGroup
					for range callers {
						running.Go(func() {
							for n := next.Add(1); n <= uint64(b.N); n = next.Add(1) {
								if err := do(n); err != nil {
									b.Error(err)
									return
								}
							}
						})
					}
					running.Wait()
				})
			}
		}
	}
}
