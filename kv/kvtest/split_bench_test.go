package kvtest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// BenchmarkSplit is how long a partition of three replicas takes to split, from the request to a
// table that has both parts and the leader of the new one: one split after the other.
func BenchmarkSplit(b *testing.B) {
	cluster := Start(b, Options{Cores: 3})
	client := cluster.Client(b)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	ks, err := client.CreateKeyspace(ctx, "split", kv.Range(), kv.AutoSplit(false))
	if err != nil {
		b.Fatal(err)
	}
	for i := range 100 {
		if _, err := ks.Put(ctx, fmt.Appendf(nil, "k%06d", i*100), nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	var took []time.Duration
	for i := range b.N {
		began := time.Now()
		split, err := admin.New(client).SplitPartition(ctx, "split", fmt.Appendf(nil, "k%06d", i))
		if err != nil {
			b.Fatal(err)
		}
		for led := false; !led; {
			all, err := admin.New(client).Partitions(ctx, "split")
			if err != nil {
				b.Fatal(err)
			}
			led = slices.ContainsFunc(all, func(p admin.PartitionInfo) bool {
				return p.ID == split.Child && p.Leader != 0
			})
		}
		took = append(took, time.Since(began))
	}
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/median")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms/p99")
}
