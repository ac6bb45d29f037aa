package node

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Whoever does the work of a batch, and however many do, each request is answered once, and writes to a partition keep their order.
func TestWorkIsDoneOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		partitions := c.createHash(2, 8)
		c.await("partitions are led", 10*time.Second, func() bool { return c.asPreferred(partitions) })
		const rounds, writes = 20, 5
		for round := range rounds {
			for node := uint64(1); node <= 3; node++ {
				var requests []*kvpb.Request
				order := make(map[uint64][]uint64) // by partition, the ids of the puts
				for i := range writes {
					for _, p := range partitions {
						leader, term := c.believedLeader(p.Id)
						if leader != node {
							continue
						}
						q := put(p, term, fmt.Sprintf("k%d.%d", round, i), "v")
						order[p.Id] = append(order[p.Id], q.Id)
						requests = append(requests, q, get(p, term, fmt.Sprintf("k%d.%d", round, i)))
					}
				}
				if len(requests) == 0 {
					continue
				}
				began := time.Now() // virtual: it does not pass while anybody works
				var mu sync.Mutex
				answers := make(map[uint64]*kvpb.Response)
				all := make(chan struct{})
				work := c.nodes[node].Take(7, requests, func(r *kvpb.Response) {
					mu.Lock()
					defer mu.Unlock()
					if answers[r.Id] != nil {
						t.Errorf("request %d is answered twice", r.Id)
					}
					answers[r.Id] = r
					if len(answers) == len(requests) {
						close(all)
					}
				})
				var workers sync.WaitGroup
				for range 4 {
					workers.Go(work.Run)
				}
				workers.Wait()
				work.Done()
				select {
				case <-all:
				case <-time.After(30 * time.Second):
					t.Fatalf("%d of %d requests are answered", len(answers), len(requests))
				}
				if d := time.Since(began); d >= 50*time.Millisecond {
					t.Errorf("the batch took %v: nobody had the groups stepped before the next tick", d)
				}
				for p, ids := range order {
					last := answers[ids[0]].GetPut().GetVersion()
					for _, id := range ids[1:] {
						version := answers[id].GetPut().GetVersion()
						if version == nil || last == nil {
							t.Fatalf("a put was refused: %v", answers[id])
						}
						if version.Wall < last.Wall || (version.Wall == last.Wall && version.Logical <= last.Logical) {
							t.Errorf("partition %d: the puts of a batch were not done in their order", p)
						}
						last = version
					}
				}
			}
		}
	})
}
