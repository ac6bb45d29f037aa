package kvtest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// TestFullDisksRest: servers whose disks are full, and that no client writes to, do not write over
// and over what they have no room for.
func TestFullDisksRest(t *testing.T) {
	const capacity, reserve = 64 << 20, 8 << 20
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{
			Nodes: 3, Cores: 3, Latency: latency,
			Configure: func(_ int, s *embedded.ServerConfig) {
				s.MinFreeBytes, s.RetainLogBytes, s.MemTableBytes = reserve, 64<<10, 1<<20
			},
		})
		ks := create(t, c.Client(t), "large", kv.Hash(3))
		for server := range c.Servers() {
			c.Disk(server).SetCapacity(capacity)
		}
		random := rand.NewChaCha8([32]byte{1})
		value := make([]byte, 64<<10)
		full := 0
		for i := 0; full < 5 && i < 5000; i++ {
			_, _ = random.Read(value)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := ks.Put(ctx, fmt.Appendf(nil, "k%d", i%150), value)
			cancel()
			if errors.Is(err, kv.ErrDiskFull) {
				full++
				time.Sleep(500 * time.Millisecond)
			}
		}
		if full == 0 {
			t.Fatal("the disks do not run full")
		}
		time.Sleep(3 * time.Minute) // in which compactions end for which there is room
		var before [3]int64
		for server := range before {
			before[server] = c.Disk(server).Written()
		}
		time.Sleep(time.Minute)
		for server := range before {
			wrote := c.Disk(server).Written() - before[server]
			left := capacity - c.Disk(server).Used()
			t.Logf("server %d wrote %d KiB in a minute, %d KiB are left", server, wrote>>10, left>>10)
			if wrote > capacity {
				t.Errorf("server %d wrote %d MiB in a minute without having anything to do", server,
					wrote>>20)
			}
		}
	})
}
