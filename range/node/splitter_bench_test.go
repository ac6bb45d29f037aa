package node

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/replica"
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
			for s.leaders.count() < 1 {
				time.Sleep(time.Millisecond)
			}
			requests := make([]*kvpb.Request, batch)
			for i := range requests {
				requests[i] = &kvpb.Request{Id: uint64(i), Partition: 100, Generation: 1, Term: 1,
					Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: fmt.Appendf(nil, "key%d", i)}}}
			}
			h := s.leaders.led()[0]
			if h.load.sampling.Store(nil); on {
				at := &sampling{}
				at.gap.Store(5000) // half a million requests for each second
				h.load.sampling.Store(at)
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

// BenchmarkNote measures what sampling adds to the way of 64 requests of one partition, none of
// which is sampled in most cases.
func BenchmarkNote(b *testing.B) {
	s := &sampling{}
	s.gap.Store(5000)
	requests := make([]replica.Pending, 64)
	for i := range requests {
		requests[i].Request = &kvpb.Request{Command: &kvpb.Request_Get{
			Get: &kvpb.GetRequest{Key: fmt.Appendf(nil, "key%d", i)}}}
	}
	for b.Loop() {
		s.note(requests)
	}
}
