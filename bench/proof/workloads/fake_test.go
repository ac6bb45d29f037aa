package workloads

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// mistakes are the deliberate mistakes of a fakeCluster. The zero value makes none.
type mistakes = fakeserver.Mistakes

// fakeCluster is a few nodes, each with its own clock. Connections break before and after requests
// are served.
type fakeCluster struct {
	*fakeserver.Cluster
	clients int
}

// pageRows bounds pages, so that even small scans have several.
const pageRows = 7

func startFake(t *testing.T, m mistakes) *fakeCluster {
	c := &fakeCluster{Cluster: fakeserver.Start(t, 3)}
	t.Cleanup(c.Close)
	c.Network.SetDefaultLatency(300 * time.Microsecond)
	for id, n := range c.Nodes {
		n.Skew.Store(int64(time.Duration(int64(id)-2) * 100 * time.Millisecond))
	}
	c.Set(func() { c.Mistakes, c.PageRows = m, pageRows })
	c.Play(func(*fakeserver.Node, *kvpb.Request) fakeserver.Fault {
		return fakeserver.Fault{BreakBefore: c.Random.IntN(400) == 0, BreakAfter: c.Random.IntN(
			200) == 0}
	})
	return c
}

// open connects a client. Each client has its own host.
func (c *fakeCluster) open(ctx context.Context, options ...kv.Option) (*kv.Client, error) {
	var host string
	var random *rand.Rand
	c.Set(func() {
		c.clients++
		host = fmt.Sprintf("client%d", c.clients)
		random = rand.New(rand.NewPCG(c.Random.Uint64(), 0))
	})
	var mu sync.Mutex
	return kv.Open(ctx, c.Endpoints()[:2], append([]kv.Option{kv.Dialer(c.Dialer(host)),
		kv.Random(func() uint64 {
			mu.Lock()
			defer mu.Unlock()
			return random.Uint64()
		})}, options...)...)
}
