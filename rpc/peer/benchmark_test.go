package peer

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/memnet"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// BenchmarkPeer measures one-way messages between two hosts: each operation is a Send of one append
// with one entry of 256 bytes, answered by a Send of one message, as between leader and follower.
func BenchmarkPeer(b *testing.B) {
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			h := newHosts(b, network{}, 2)
			answers := make([]chan struct{}, callers)
			for i := range answers {
				answers[i] = make(chan struct{}, 1)
			}
			h[1].handle = func(_ uint64, batch *peerpb.MessageBatch) {
				replies := make([]*peerpb.RaftMessage, len(batch.Messages))
				for i, m := range batch.Messages {
					replies[i] = &peerpb.RaftMessage{Group: m.Group, Type: 4, Term: 5, Index: m.Index}
				}
				h[1].transport.Send(1, ClassConsensus, replies)
			}
			h[0].handle = func(_ uint64, batch *peerpb.MessageBatch) {
				for _, m := range batch.Messages {
					answers[m.Group] <- struct{}{}
				}
			}
			entry := &peerpb.Entry{Term: 5, Index: 77, Data: make([]byte, 300)}
			var group sync.WaitGroup
			start := time.Now()
			for i := range callers {
				group.Go(func() {
					for range b.N/callers + 1 {
						h[0].transport.Send(2, ClassConsensus, []*peerpb.RaftMessage{{
							Group: uint64(i), Type: 3, Term: 5, Index: 76,
							Entries: []*peerpb.Entry{entry}}})
						<-answers[i]
					}
				})
			}
			group.Wait()
			b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "messages/s")
		})
	}
}

// A connection on which only pings go is not broken.
func TestPingsKeepConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts := newHosts(t, network{mem: memnet.New()}, 2)
		var unreachable atomic.Int64
		hosts[0].unreachable = func(uint64) { unreachable.Add(1) }
		for range 600 {
			hosts[0].transport.Ping(2, ping(1), nil)
			time.Sleep(100 * time.Millisecond)
		}
		if n := unreachable.Load(); n != 0 {
			t.Fatalf("unreachable %d times", n)
		}
	})
}
