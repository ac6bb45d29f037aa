package demo

import (
	"context"
	"sync"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/deploy/embedded/console"
	"github.com/tidemarkdb/tidemark/kv"
)

// Buttons implements console.Demo for a cluster in this process.
type Buttons struct {
	cluster *embedded.Cluster

	mu sync.Mutex
	// load is the running load, or nil.
	load   *load
	closed bool
}

// New makes the buttons of a cluster. Close them before the cluster.
func New(cluster *embedded.Cluster) *Buttons { return &Buttons{cluster: cluster} }

var _ console.Demo = (*Buttons)(nil)

// Servers implements console.Demo.
func (b *Buttons) Servers() []console.DemoServer {
	var all []console.DemoServer
	for i := range b.cluster.Size() {
		address, node, core, killed, cut := b.cluster.State(i)
		state := "running"
		switch {
		case killed:
			state = "stopped"
		case cut:
			state = "isolated"
		}
		all = append(all, console.DemoServer{Server: i + 1, Node: node, Address: address, State: state,
			Core: core})
	}
	return all
}

// Stop implements console.Demo.
func (b *Buttons) Stop(ctx context.Context, server int) error {
	return b.cluster.Kill(ctx, server-1)
}

// Isolate implements console.Demo.
func (b *Buttons) Isolate(_ context.Context, server int) error {
	return b.cluster.Cut(server-1, true)
}

// Join implements console.Demo.
func (b *Buttons) Join(_ context.Context, server int) error {
	return b.cluster.Cut(server-1, false)
}

// Start implements console.Demo.
func (b *Buttons) Start(ctx context.Context, server int) error {
	return b.cluster.Restart(ctx, server-1)
}

// Add implements console.Demo.
func (b *Buttons) Add(ctx context.Context) error { return b.cluster.Add(ctx) }

// StartLoad implements console.Demo. If a load is running, it continues.
func (b *Buttons) StartLoad(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.load != nil || b.closed {
		return nil
	}
	client, err := kv.Open(ctx, b.cluster.Endpoints(), kv.Dialer(b.cluster.Dialer()))
	if err != nil {
		return err
	}
	l, err := startLoad(ctx, client)
	if err != nil {
		_ = client.Close()
		return err
	}
	b.load = l
	return nil
}

// StopLoad implements console.Demo.
func (b *Buttons) StopLoad(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.load != nil {
		b.load.stop()
		b.load = nil
	}
	return nil
}

// Load implements console.Demo.
func (b *Buttons) Load() console.DemoLoad {
	if !b.mu.TryLock() { // the load is just starting or stopping
		return console.DemoLoad{}
	}
	defer b.mu.Unlock()
	if b.load == nil {
		return console.DemoLoad{}
	}
	return b.load.state()
}

// Close stops the load permanently.
func (b *Buttons) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	_ = b.StopLoad(context.Background())
}
