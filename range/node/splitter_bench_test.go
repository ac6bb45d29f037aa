package node

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/node/loadmeter"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// BenchmarkSampling measures what the sampling of requests costs the way of a batch of gets of one
// partition: off, and as it is for a partition that is read as fast as this.
func BenchmarkSampling(b *testing.B) {
	for _, on := range []bool{false, true} {
		b.Run(fmt.Sprintf("on=%t", on), func(b *testing.B) {
			dir := b.TempDir()
			c, net := newCore(), newNetwork()
			s := openSingle(b, dir, c)
			if err := s.Start(transport{net, 1}); err != nil {
				b.Fatal(err)
			}
			const batch = 64
			c.update(manyPartitions(1, 1))
			for s.leaders.Count() < 1 {
				time.Sleep(time.Millisecond)
			}
			requests := make([]*kvpb.Request, batch)
			for i := range requests {
				requests[i] = &kvpb.Request{Id: uint64(i), Partition: 100, Generation: 1, Term: 1,
					Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: fmt.Appendf(nil, "key%d", i)}}}
			}
			h := s.leaders.Led()[0]
			if h.Load.Sampling.Store(nil); on {
				at := &loadmeter.Sampling{}
				at.Gap.Store(5000) // half a million requests for each second
				h.Load.Sampling.Store(at)
			}
			b.ReportAllocs()
			for b.Loop() {
				handle(s.Node, 7, requests, func(*kvpb.Response) {})
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/batch, "ns/request")
			s.close()
			net.close()
		})
	}
}
