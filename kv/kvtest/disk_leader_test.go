package kvtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// A node whose disk is stalled leaves elections to the others.
func TestStalledDiskIsNotElected(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Nodes: 5, Cores: 1, Separate: true, Latency: latency})
		ks := create(t, c.Client(t), "things", kv.Range(), kv.Replicas(5))
		put(t, ks, "k", "1")
		stalled := leaderOf(t, c)
		c.Disk(stalled).SetStalled(true)
		put(t, ks, "k", "2")
		for range 8 {
			leader := leaderOf(t, c)
			c.Isolate(leader, memnet.Stall)
			written := make(chan struct{})
			go func() {
				defer close(written)
				put(t, ks, "k", "3")
			}()
			for done := false; !done; time.Sleep(20 * time.Millisecond) {
				select {
				case <-written:
					done = true
				default:
				}
				if leads, _ := leading(c, stalled); leads {
					t.Fatal("the node whose disk is stalled was elected")
				}
			}
			c.Rejoin(leader)
			time.Sleep(2 * time.Second)
		}
		c.Disk(stalled).SetStalled(false)
		equal(t, c)
	})
}

// putWithin tries a write until it is taken.
func putWithin(t *testing.T, ks *kv.Keyspace, key, value string, limit time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := ks.Put(ctx, []byte(key), []byte(value))
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not written within %v: %v", limit, err)
		}
	}
}
