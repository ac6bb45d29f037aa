package kvtest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// A follower that was away is sent all that it missed at once, by the leaders of several groups,
// and its disk has room for little of it. It takes what fits, keeps of its reserve what a drop of
// the keyspace needs, and the drop gives the room back.
func TestCatchUpKeepsTheReserve(t *testing.T) {
	const reserve, missed = 4 << 20, 16 << 20
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Nodes: 3, Cores: 3, Separate: true, Latency: latency,
			Configure: func(_ int, s *embedded.ServerConfig) {
				s.MinFreeBytes, s.RetainLogBytes = reserve, 2*missed
			}})
		client := c.Client(t)
		large, small := create(t, client, "large", kv.Hash(3)), create(t, client, "small",
			kv.Hash(3))
		const away = 3
		c.Isolate(away, memnet.Break)
		capacity := c.Disk(away).Used() + 2*reserve
		c.Disk(away).SetCapacity(capacity)
		time.Sleep(5 * time.Second) // virtual
		random := rand.NewChaCha8([32]byte{2})
		value := make([]byte, 64<<10)
		for i := range missed / len(value) {
			_, _ = random.Read(value)
			if _, err := large.Put(t.Context(), fmt.Appendf(nil, "k%d", i), value); err != nil {
				t.Fatal(err)
			}
		}
		put(t, small, "k", "1")
		before := c.Disk(away).Written()
		c.Rejoin(away)
		time.Sleep(20 * time.Second) // virtual
		left := capacity - c.Disk(away).Used()
		t.Logf("the follower has %d KiB left of a reserve of %d", left>>10, reserve>>10)
		if wrote := c.Disk(away).Written() - before; wrote < 512<<10 {
			t.Errorf("a follower with room wrote %d bytes", wrote)
		}
		if left < reserve/2 {
			t.Errorf("a follower that caught up has %d bytes left of a reserve of %d", left, reserve)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := client.DropKeyspace(ctx, "large"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // virtual
		if left := capacity - c.Disk(away).Used(); left < reserve {
			t.Errorf("a drop left %d bytes free, less than the reserve of %d", left, reserve)
		}
		put(t, small, "k", "2")
		equal(t, c)
	})
}
