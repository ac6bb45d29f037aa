package store

import (
	"context"
	"fmt"
	"testing"
)

// BenchmarkKeepAlive renews leases at the leader, some of 10,000 with each call.
func BenchmarkKeepAlive(b *testing.B) {
	for _, n := range []int{1, 256, 4096} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newCore(b, 1, nil)
			defer c.close()
			c.elect(c.members[0])
			s := c.members[0].store
			ids := make([]int64, n)
			for i := range int64(10_000) {
				do(b, s, Grant(i+1, 60_000))
			}
			b.ResetTimer()
			for round := range b.N {
				for i := range ids {
					ids[i] = int64((round*n+i)%10_000) + 1
				}
				if _, err := s.KeepAliveAll(context.Background(), ids); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/renewal")
		})
	}
}
