package node

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Whichever goroutine does the work of a batch, and however many do, each request is answered once,
// and writes to a partition keep their order. (Of different keys that shows in nothing: the later
// one may even have the earlier timestamp, if the other was raised above a read.)
func TestWorkIsDoneOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		partitions := c.createHash(2, 8)
		c.await("partitions are led", 10*time.Second,
			func() bool { return c.asPreferred(partitions) })
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
						key := fmt.Sprintf("k%d", round)
						q := put(p, term, key, fmt.Sprint("v", i))
						order[p.Id] = append(order[p.Id], q.Id)
						requests = append(requests, q, get(p, term, key))
					}
				}
				if len(requests) == 0 {
					continue
				}
				began := time.Now() // virtual: it does not pass while a goroutine works
				var mu sync.Mutex
				answers := make(map[uint64]*kvpb.Response)
				all := make(chan struct{})
				work := c.nodes[node].Submit(7, requests, func(r *kvpb.Response) {
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
					t.Errorf("the batch took %v: the groups were not stepped before the next "+
						"tick", d)
				}
				for p, ids := range order {
					last := answers[ids[0]].GetPut().GetVersion()
					for _, id := range ids[1:] {
						version := answers[id].GetPut().GetVersion()
						if version == nil || last == nil {
							t.Fatalf("a put was refused: %v", answers[id])
						}
						if version.Wall < last.Wall ||
							(version.Wall == last.Wall && version.Logical <= last.Logical) {
							t.Errorf("partition %d: the puts of a batch were not done in their "+
								"order", p)
						}
						last = version
					}
				}
			}
		}
	})
}

// A reader is held up in the evaluation of one replica's writes, and what another replica has
// proposed for it waits to be stepped together with that. The reader that takes over has it stepped
// before it goes on: it may be held up as well.
func TestRelievedReaderLeavesNoProposal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		partitions := c.createHash(2, 9) // three for each node
		c.await("partitions are led", 10*time.Second,
			func() bool { return c.asPreferred(partitions) })
		const node = 1
		var led []*clusterpb.Partition
		for _, p := range partitions {
			if p.Replicas[0].Node == node {
				led = append(led, p)
			}
		}
		c.await("leases", 10*time.Second, func() bool {
			return !slices.ContainsFunc(led, func(p *clusterpb.Partition) bool {
				c.mustPut(p, "k", "v")
				leader, _ := c.leaderOf(p.Id)
				return leader != node
			})
		})
		var requests []*kvpb.Request
		for i, p := range led {
			_, term := c.leaderOf(p.Id)
			if i == 0 {
				requests = append(requests, put(p, term, "k", "w"))
			} else {
				requests = append(requests, swapAbsent(p, term, "k", "w"))
			}
		}

		synctest.Wait() // nothing else is on its way that would have a group stepped
		// What finds something else than it expects is answered by its evaluator.
		var mu sync.Mutex
		answers := make(map[uint64]*kvpb.Response)
		gate := make(chan struct{})
		release := sync.OnceFunc(func() { close(gate) })
		defer release()
		work := c.nodes[node].Submit(7, requests, func(r *kvpb.Response) {
			mu.Lock()
			answers[r.Id] = r
			mu.Unlock()
			if r.Id != requests[0].Id {
				<-gate
			}
		})
		answered := func() (ids []uint64) {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Sorted(maps.Keys(answers))
		}
		var readers sync.WaitGroup
		readers.Go(work.Run)
		if got, want := answered(), []uint64{requests[1].Id}; !slices.Equal(got, want) {
			t.Fatalf("with one reader held up, requests %v of %d to %d are answered, want %v", got,
				requests[0].Id, requests[2].Id, want)
		}
		readers.Go(work.Run)
		if got, want := answered(), []uint64{requests[0].Id, requests[1].Id,
			requests[2].Id}; !slices.Equal(got, want) {
			t.Errorf("with both readers held up, requests %v of %d to %d are answered, want all",
				got, requests[0].Id, requests[2].Id)
		}
		release()
		readers.Wait()
		work.Done()
		answered()
		for i, q := range requests {
			switch r := answers[q.Id]; {
			case r.GetError() != nil, i == 0 && r.GetPut() == nil, i > 0 &&
				(r.GetCompareAndSwap() == nil || r.GetCompareAndSwap().Swapped):
				t.Errorf("request %d is answered with %v", i, r)
			}
		}
	})
}

// swapAbsent writes a key if it is absent.
func swapAbsent(p *clusterpb.Partition, term uint64, key, value string) *kvpb.Request {
	q := put(p, term, key, value)
	q.Command = &kvpb.Request_CompareAndSwap{CompareAndSwap: &kvpb.CompareAndSwapRequest{
		Key: []byte(
			key,
		), Expected: &kvpb.CompareAndSwapRequest_Absent{Absent: true}, NewValue: []byte(value)}}
	return q
}
