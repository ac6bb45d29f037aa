package main

import (
	"context"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
)

// BenchmarkOperation does the operations one by one, with no pause between them, so that profiles
// and allocations of each can be looked at. The allocations are those of the client and of all
// three nodes.
func BenchmarkOperation(b *testing.B) {
	ctx := context.Background()
	cluster, err := start(ctx, b.TempDir(), 0)
	if err != nil {
		b.Fatal(err)
	}
	defer cluster.close()
	client, err := kv.Open(ctx, cluster.Endpoints())
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	p, err := fill(ctx, client)
	if err != nil {
		b.Fatal(err)
	}
	end, err := p.compare(ctx, &config{dir: b.TempDir(), trip: 500 * time.Microsecond}, client,
		cluster.Endpoints())
	if err != nil {
		b.Fatal(err)
	}
	defer end()
	for _, o := range costs(client, p) {
		b.Run(o.name, func(b *testing.B) {
			b.ReportAllocs()
			for n := range 100 { // so that there are lanes, and all leaders are known
				if err := o.do(ctx, n); err != nil {
					b.Fatal(err)
				}
			}
			b.ResetTimer()
			for n := range b.N {
				if err := o.do(ctx, n); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
