package kvtest_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// stopPause is the longest time for which a stop may keep a partition from answering, in a cluster
// whose machines have nothing else to do.
const stopPause = 100 * time.Millisecond

// pauses asks every partition again and again, and keeps the longest time between two answers, and
// the first error.
type pauses struct {
	mu     sync.Mutex
	worst  time.Duration
	what   string
	failed error
}

// watch does something every few milliseconds until stop is closed.
func (p *pauses) watch(stop chan struct{}, what string, do func(n int) error) {
	last := time.Now()
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-time.After(2 * time.Millisecond):
		}
		err := do(n)
		p.mu.Lock()
		if err != nil && p.failed == nil {
			p.failed = fmt.Errorf("%s: %w", what, err)
		}
		if gap := time.Since(last); gap > p.worst {
			p.worst, p.what = gap, what
		}
		p.mu.Unlock()
		last = time.Now()
	}
}

// Servers that stop one after the other hand over what they lead first: no client sees an error, no
// leader is elected because one is missed, and no partition pauses for longer than a hand-over
// takes.
func TestStopHandsOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Nodes: 3, Cores: 3, Latency: latency})
		const partitions = 6
		ks := create(t, c.Client(t), "things", kv.Hash(partitions))
		watched := make([]string, partitions)
		for i, missing := 0, partitions; missing > 0; i++ {
			key := fmt.Sprintf("k%d", i)
			if at := keys.HashPartition([]byte(key), partitions); watched[at] == "" {
				watched[at], missing = key, missing-1
				put(t, ks, key, "0")
			}
		}
		time.Sleep(20 * time.Second) // leaders are where they are preferred
		var all sync.WaitGroup
		for round := range 2 {
			for server := range c.Servers() {
				p, stop := &pauses{}, make(chan struct{})
				for _, key := range watched {
					all.Go(func() {
						p.watch(stop, "put "+key, func(n int) error {
							_, err := ks.Put(t.Context(), []byte(key), fmt.Append(nil, n))
							return err
						})
					})
					all.Go(func() {
						p.watch(stop, "get "+key, func(int) error {
							_, err := ks.Get(t.Context(), []byte(key))
							return err
						})
					})
				}
				time.Sleep(time.Second)
				led := 0
				for _, r := range c.Process(server).Replicas() {
					if r.Leads {
						led++
					}
				}
				core := c.Process(server).LeadsCore()
				before := terms(c, server)
				began := time.Now()
				if err := c.Stop(server); err != nil {
					t.Error(err)
				}
				took := time.Since(began)
				time.Sleep(5 * time.Second)
				close(stop)
				all.Wait()
				t.Logf("round %d: server %d led %d partitions (the core: %v), stopped in %v: "+
					"longest pause %v of %s", round, server, led, core, took, p.worst, p.what)
				if p.failed != nil {
					t.Errorf("round %d: server %d stopped: %v", round, server, p.failed)
				}
				if p.worst > stopPause {
					t.Errorf("round %d: when server %d stopped, %s paused for %v", round, server,
						p.what, p.worst)
				}
				for partition, term := range terms(c, server) {
					if term > before[partition]+1 {
						t.Errorf("round %d: partition %d went from term %d to %d: more than one "+
							"hand-over", round, partition, before[partition], term)
					}
				}
				start(t, c, server)
				time.Sleep(30 * time.Second)
			}
		}
	})
}

// terms are the terms of the partitions' leaders, by the servers other than one.
func terms(c *kvtest.Cluster, but int) map[uint64]uint64 {
	found := make(map[uint64]uint64)
	for i := range c.Servers() {
		if process := c.Process(i); process != nil && i != but {
			for _, r := range process.Replicas() {
				found[r.Partition] = max(found[r.Partition], r.Term)
			}
		}
	}
	return found
}
