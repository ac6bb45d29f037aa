package backup

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/backup/target"
	"github.com/tidemarkdb/tidemark/range/route"
)

// PartConfig configures a Part. All fields but OpenTarget must be set.
type PartConfig struct {
	// WorkerConfig is used by both the Worker and the Maker. NewPart sets Sender and Open.
	WorkerConfig
	// OpenSender makes the Sender to the replicas. The Part closes it.
	OpenSender func() (*route.Sender, error)
	// OpenTarget opens a target. If it is nil, the target is opened by its URL.
	OpenTarget func(ctx context.Context, url string) (target.Target, error)
	Clock      *hlc.Clock
	// Conn returns connections to other servers. The Part does not close them.
	Conn    func(address string) (*grpc.ClientConn, error)
	Version string
}

// Part is a server's part in backups.
type Part struct {
	config PartConfig
	Worker *Worker

	// mu guards the Sender. The Sender is opened for the first unit. It is opened and closed with the
	// lock held.
	mu     sync.Mutex
	sender *route.Sender
	closed bool
}

// NewPart makes a Part. Close it after use.
func NewPart(config PartConfig) *Part {
	p := &Part{config: config}
	config.Sender, config.Open = p.replicas, p.open
	p.Worker = NewWorker(config.WorkerConfig)
	return p
}

// replicas returns the Sender to the replicas.
func (p *Part) replicas() (*route.Sender, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errors.New("the server is stopping")
	}
	if p.sender == nil {
		sender, err := p.config.OpenSender()
		if err != nil {
			return nil, err
		}
		p.sender = sender
	}
	return p.sender, nil
}

// Close closes the Sender. Units that are being written fail.
func (p *Part) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.sender != nil {
		p.sender.Close()
	}
}

// open opens a target with this server's credentials.
func (p *Part) open(ctx context.Context, url string) (target.Target, error) {
	if p.config.OpenTarget != nil {
		return p.config.OpenTarget(ctx, url)
	}
	return target.Open(ctx, url, target.Options{OnRetry: func(operation, name string, err error) {
		p.config.Logger.Info("a target of backups is asked again", "operation", operation,
			"object", name, "error", err)
	}})
}

// Maker returns a Maker, which makes backups while the member leads the core.
func (p *Part) Maker(m Member) *Maker {
	return NewMaker(MakerConfig{
		Core:         func() Core { return leader{m.Server()} },
		Coordination: m.state, CoordinationStore: m.coordinationStore, Directory: m.Directory,
		Clock: p.config.Clock, Conn: p.config.Conn,
		Cluster: func() uint64 {
			cluster, _ := p.config.Self()
			return cluster
		},
		Version: p.config.Version, Open: p.open, Random: p.config.Random, Logger: p.config.Logger})
}
