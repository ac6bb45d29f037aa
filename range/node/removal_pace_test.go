package node

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// TestRemovalsThatTrickleIn: replicas that are to be removed one by one stop answering at once, and
// leave the disk together: the memtables, in which others' writes are, are flushed now and then only.
func TestRemovalsThatTrickleIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all, every = 100, 100 * time.Millisecond
		c := newCluster(t, 3, nil)
		kept, dropped := c.createHash(2, 2), c.createHash(3, all)
		m := c.nodes[1]
		before := m.state.Metrics().Flush.Count
		began := time.Now()
		for i, p := range dropped {
			// Every other one first, so that their data is not adjacent.
			if p = dropped[(2*i)%all+2*i/all]; i%10 == 0 {
				c.mustPut(kept[0], fmt.Sprintf("k%d", i), "v")
			}
			c.mustPut(p, "k", "v") // some of it is in memory
			c.core.update(&clusterpb.TableUpdate{RemovedPartitions: []uint64{p.Id}})
			c.await("the replica to be closed", every, func() bool {
				h := m.replicas.get(keys.PartitionID(p.Id))
				return h == nil || h.removed.Load()
			})
			q := get(p, 1, "k")
			if r := c.ask(m.id, q)[q.Id]; r.GetError() == nil {
				t.Fatalf("a replica that is to be removed answers: %v", r)
			}
			time.Sleep(every) // virtual
		}
		c.await("all of them to be gone", 2*removePause+time.Second, func() bool {
			return len(m.replicas.all()) == len(kept)
		})
		rounds := int64(time.Since(began)/removePause) + 2
		if n := m.state.Metrics().Flush.Count - before; n > 4*rounds {
			t.Errorf("%d flushes for %d replicas that were removed within %s", n, all,
				time.Since(began))
		}
		for i := 0; i < all; i += 10 {
			c.mustGet(kept[0], fmt.Sprintf("k%d", i), "v")
		}
		m.crash()
		m.start()
		if n := len(m.replicas.all()); n != len(kept) {
			t.Errorf("%d replicas after a restart, want %d", n, len(kept))
		}
		if marked, err := m.markedForRemoval(); err != nil || len(marked) > 0 {
			t.Errorf("%d marks are left, %v", len(marked), err)
		}
	})
}

// What rests is never lost: it comes back when its time has come, or as part of a batch.
func TestRemovalPace(t *testing.T) {
	var p removalPace
	p.init()
	now := time.Now()
	closed := func(from, to int) (all []*hosted) {
		for i := from; i < to; i++ {
			all = append(all, &hosted{id: keys.PartitionID(i)})
		}
		return all
	}
	if p.late(now, 1) {
		t.Error("the first one has to wait")
	}
	p.removed(now)
	if !p.late(now.Add(removePause-1), 1) || p.late(now.Add(removePause), 1) {
		t.Error("the pause is not as long as it should be")
	}
	p.rest(now, closed(0, removeBatch-2))
	p.rest(now, closed(removeBatch-3, removeBatch-2)) // told again
	if !p.late(now, 1) || p.rested(now, 1) != nil {
		t.Error("what is not a batch does not wait")
	}
	if p.late(now, 2) {
		t.Error("a batch waits")
	}
	if n := len(p.rested(now, 2)); n != removeBatch-2 {
		t.Errorf("%d come back with a batch", n)
	}
	p.rest(now, closed(0, 3))
	if n := len(p.rested(now.Add(removePause), 0)); n != 3 {
		t.Errorf("%d come back after the pause", n)
	}
	if p.rested(now.Add(removePause), 0) != nil {
		t.Error("they come back twice")
	}
	p.timer.Stop()
}
