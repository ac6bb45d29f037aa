package kvtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// Cluster is a running cluster. See the package's documentation.
type Cluster struct {
	options Options
	network *memnet.Network
	servers []*server
	logger  *slog.Logger
	tail    *tail // nil if the test gave a logger
	// messages is what happens to Raft messages between the servers.
	messages *Messages

	mu struct {
		sync.Mutex
		random  *rand.Rand
		clients int
	}
}

// Start starts a cluster and returns when it is ready. It is closed when the test ends.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	o.ensureDefaults(rand.Uint64)
	c := &Cluster{options: o, network: memnet.New(), logger: o.Logger}
	c.mu.random = rand.New(rand.NewPCG(o.Seed, 1))
	if c.logger == nil {
		c.logger, c.tail = newTailLogger()
	}
	c.network.SetDefaultLatency(o.Latency)
	for i := range o.servers() {
		c.servers = append(c.servers, &server{cluster: c, index: i, host: "server-" +
			strconv.Itoa(i), disk: newDisk(c.random()), clock: newClock()})
	}
	c.messages = newMessages(c)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("closing the cluster: %v", err)
		}
		if t.Failed() && c.tail != nil {
			t.Logf("the last lines of the servers' logs:\n%s", c.tail)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), o.StartTimeout)
	defer cancel()
	if err := c.startAll(ctx, o.NotReady); err != nil {
		t.Fatalf("starting a cluster of %d nodes and %d core members: %v", o.Nodes, o.Cores, err)
	}
	return c
}

func (c *Cluster) startAll(ctx context.Context, notReady bool) error {
	for i := range c.servers {
		if err := c.Run(i); err != nil {
			return err
		}
	}
	if notReady {
		return nil
	}
	return c.WaitReady(ctx)
}

// Close stops all servers. The test's end does it by itself.
func (c *Cluster) Close() error {
	errs := make([]error, len(c.servers))
	var wg sync.WaitGroup
	for i := range c.servers {
		wg.Go(func() { errs[i] = c.end(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Log is the last lines of the servers' logs; empty if the test gave a logger of its own.
func (c *Cluster) Log() string {
	if c.tail == nil {
		return ""
	}
	return c.tail.String()
}

// Servers is how many servers the cluster has, those that are down included. They are counted from
// 0.
func (c *Cluster) Servers() int { return len(c.servers) }

// Endpoints are the addresses of all servers.
func (c *Cluster) Endpoints() []string {
	var all []string
	for _, s := range c.servers {
		all = append(all, s.address())
	}
	return all
}

// core is the list of the core's addresses.
func (c *Cluster) core() []string { return c.Endpoints()[:c.options.Cores] }

// Dialer makes connections into the cluster's network, from a host that is given a name: links to
// it can be cut like any other.
func (c *Cluster) Dialer(host string) func(ctx context.Context, address string) (net.Conn, error) {
	return c.network.Dialer(host)
}

// Client opens a client that knows all servers; it is closed when the test ends, before the
// cluster. Its host in the network is "client-1", the next one's "client-2".
func (c *Cluster) Client(t testing.TB, options ...kv.Option) *kv.Client {
	t.Helper()
	client, err := c.Open(context.Background(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Errorf("closing a client: %v", err)
		}
	})
	return client
}

// Open opens a client that the caller closes, before the test ends.
func (c *Cluster) Open(ctx context.Context, options ...kv.Option) (*kv.Client, error) {
	c.mu.Lock()
	c.mu.clients++
	host := "client-" + strconv.Itoa(c.mu.clients)
	c.mu.Unlock()
	own := []kv.Option{kv.Dialer(c.Dialer(host)), kv.Random(c.source())}
	return kv.Open(ctx, c.Endpoints(), append(own, options...)...)
}

// Network is the network between the servers and clients; Host and "client-N" are the names in it.
func (c *Cluster) Network() *memnet.Network { return c.network }

// Messages is what happens to the Raft messages between the servers.
func (c *Cluster) Messages() *Messages { return c.messages }

// Host is a server's name in the network.
func (c *Cluster) Host(server int) string { return c.servers[server].host }

// WaitReady waits until all servers that run are ready.
func (c *Cluster) WaitReady(ctx context.Context) error {
	for i, s := range c.servers {
		if process := s.running(); process != nil {
			if err := process.WaitReady(ctx); err != nil {
				return fmt.Errorf("server %d: %w", i, err)
			}
		}
	}
	return nil
}

// source is a source of random numbers of its own, for one process or client.
func (c *Cluster) source() func() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	random := rand.New(rand.NewPCG(c.mu.random.Uint64(), c.mu.random.Uint64()))
	var mu sync.Mutex
	return func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return random.Uint64()
	}
}
