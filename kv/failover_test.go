package kv

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// hammer runs writers until stop is closed, and returns the longest time that any of them was
// without an answer. It fails the test on any error, and if a write was applied more than once.
func hammer(t *testing.T, c *fakeCluster, ks *Keyspace, id uint32, writers int,
	stop <-chan struct{}) time.Duration {
	t.Helper()
	var wg sync.WaitGroup
	longest := make([]time.Duration, writers)
	for w := range writers {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
				key := fmt.Sprintf("w%d-%d", w, i)
				began := time.Now()
				if _, err := ks.Put(t.Context(), []byte(key), []byte(key)); err != nil {
					t.Errorf("%s: %v", key, err)
					return
				}
				longest[w] = max(longest[w], time.Since(began))
				if n := c.Writes(id, key); n != 1 {
					t.Errorf("%s was applied %d times", key, n)
				}
			}
		})
	}
	wg.Wait()
	var most time.Duration
	for _, d := range longest {
		most = max(most, d)
	}
	return most
}

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.After(d) }

const election = 1500 * time.Millisecond

// elect makes others lead what a node led, as an election would: a while later, and without telling
// the table at once.
func (c *fakeCluster) elect(dead uint64) {
	for _, p := range c.Led(dead) {
		c.Lead(p, p.Next(), false)
	}
}

// The pause that callers see when a leader is killed is the election, and little more. Time is
// virtual, so this is exact.
func TestFailoverAfterKill(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		id := c.AddKeyspace("k", 8)
		client := c.open()
		defer client.Close()
		stop := make(chan struct{})
		go func() {
			defer close(stop)
			pass(time.Second)
			c.Nodes[2].Kill()
			pass(election)
			c.elect(2)
			pass(3 * time.Second)
		}()
		pause := hammer(t, c, client.Keyspace("k"), id, 50, stop)
		if pause < election/2 || pause > election+200*time.Millisecond {
			t.Errorf("the longest pause was %s, with an election of %s", pause, election)
		}
		c.Nodes[2].Start()
		defer func() { // it is used again once it answers
			pass(time.Second)
			p := c.PartitionOf(id, "x")
			c.Lead(p, 2, false)
			must[Timestamp](t)(client.Keyspace("k").Put(t.Context(), []byte("x"), nil))
		}()
	})
}

// A process that is stopped keeps its connections. Its requests go elsewhere after a second of
// silence; when it comes back, the writes it still has do no harm.
func TestFailoverAfterStop(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		id := c.AddKeyspace("k", 8)
		client := c.open()
		defer client.Close()
		stop := make(chan struct{})
		go func() {
			defer close(stop)
			pass(time.Second)
			c.Network.Isolate("node2", memnet.Stall)
			pass(election)
			c.elect(2)
			pass(15 * time.Second)
			c.Network.HealAll()
			pass(3 * time.Second)
		}()
		pause := hammer(t, c, client.Keyspace("k"), id, 50, stop)
		if pause > election+200*time.Millisecond {
			t.Errorf("the longest pause was %s, with an election of %s", pause, election)
		}
	})
}

// The only node goes away and comes back: no error as long as the context lasts.
func TestOnlyNodeRestarts(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *fakeCluster) {
		id := c.AddKeyspace("k", 2)
		client := c.open()
		defer client.Close()
		stop := make(chan struct{})
		go func() {
			defer close(stop)
			for range 4 {
				pass(time.Second)
				c.Nodes[1].Kill()
				pass(time.Second)
				c.Nodes[1].Start()
			}
			pass(time.Second)
		}()
		pause := hammer(t, c, client.Keyspace("k"), id, 10, stop)
		if pause > 2*time.Second {
			t.Errorf("the longest pause was %s", pause)
		}
	})
}

// The table stream dies with its server; changes go on coming from another one.
func TestTableStreamMoves(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		client := c.open()
		defer client.Close()
		for i := range 3 {
			c.Nodes[uint64(i+1)].Kill()
			name := fmt.Sprintf("later%d", i)
			c.AddKeyspace(name, 2)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			ks := client.Keyspace(name)
			c.elect(uint64(i + 1))
			if _, err := ks.Put(ctx, []byte("k"), nil); err != nil {
				t.Error(err)
			}
			cancel()
			c.Nodes[uint64(i+1)].Start()
		}
	})
}

// No replica says which one leads: the replicas are asked in turn, by one request at a time.
func TestLeaderIsFoundByAsking(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		c.Set(func() { c.NoLeaders = true })
		id := c.AddKeyspace("k", 0)
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("k")
		p := c.PartitionOf(id, "k")
		leader := p.Leader
		c.Lead(p, 0, false) // none leads
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				if _, err := ks.Put(t.Context(), fmt.Appendf(nil, "%d", i), nil); err != nil {
					t.Error(err)
				}
			})
		}
		pass(time.Second)
		asked := c.RequestsOf("put")
		if asked > 60 {
			t.Errorf("100 callers asked %d times in a second", asked)
		}
		c.Lead(p, leader, false)
		wg.Wait()
		if n := must[uint64](t)(ks.Count(t.Context())); n != 100 {
			t.Errorf("%d keys", n)
		}
	})
}

// Close ends what is in flight, at once.
func TestClose(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		c.AddKeyspace("k", 2)
		client := c.open()
		ks := client.Keyspace("k")
		must[Timestamp](t)(ks.Put(t.Context(), []byte("k"), nil))
		c.Play(func(*fakeserver.Node, *kvpb.Request) fakeserver.Fault {
			return fakeserver.Fault{Swallow: true}
		})
		ended := make(chan error, 3)
		go func() { _, err := ks.Put(t.Context(), []byte("k"), nil); ended <- err }()
		go func() { _, err := ks.Get(t.Context(), []byte("k")); ended <- err }()
		go func() { _, err := drain(ks.Scan(t.Context())); ended <- err }()
		pass(100 * time.Millisecond)
		client.Close()
		for range 3 {
			if err := <-ended; !errors.Is(err, ErrClosed) {
				t.Errorf("%v", err)
			}
		}
		if _, err := ks.Get(t.Context(), []byte("k")); !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
		client.Close()
		c.Play(nil)
	})
}

// A session that slept for longer than versions are kept begins anew.
func TestOldSession(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		id := c.AddKeyspace("k", 2)
		client := c.open()
		defer client.Close()
		refused := 0
		c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
			if fakeserver.IsWrite(r) && refused == 0 {
				refused++
				return fakeserver.Fault{Code: kvpb.ErrorCode_TIMESTAMP_TOO_OLD}
			}
			return fakeserver.Fault{}
		})
		must[Timestamp](t)(client.Keyspace("k").Put(t.Context(), []byte("k"), nil))
		if c.Writes(id, "k") != 1 || refused != 1 {
			t.Error("not written once")
		}
	})
}
