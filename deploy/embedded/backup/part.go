package backup

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/etcdapi"
	"github.com/tidemarkdb/tidemark/placement/server"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/backup/target"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// PartConfig is what a Part is made of. All fields but OpenTarget must be set.
type PartConfig struct {
	// WorkerConfig has what both the Worker and the Maker need. Sender and Open are set by NewPart.
	WorkerConfig
	// OpenSender makes the way to the replicas, which the Part closes.
	OpenSender func() (*route.Sender, error)
	// OpenTarget opens a target; nil: by its URL.
	OpenTarget func(ctx context.Context, url string) (target.Target, error)
	Clock      *hlc.Clock
	// Conn gives connections to other servers that their owner keeps.
	Conn    func(address string) (*grpc.ClientConn, error)
	Version string
}

// Part is a server's part in backups.
type Part struct {
	config PartConfig
	Worker *Worker

	// mu guards the way to the replicas, which is opened with the first unit. The sender is opened and
	// closed under it.
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

// replicas is the way to the replicas.
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

// Close ends what reads. Units under way fail.
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

// Member is this server's member of the core, as a Maker needs it.
type Member struct {
	// Server is asked at every call: it is nil while the server is no member.
	Server func() *server.Server
	// Coordination is the member's part of the coordination store, nil while it is not open. None:
	// the cluster has none.
	Coordination func() *store.Store
	None         bool
	// Services are those of the coordination store, nil while it is not open.
	Services func() *etcdapi.Services
	// Directory is where the copy of the coordination store is written first; empty: a temporary one.
	Directory string
}

// Maker makes backups while the member leads the core.
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

// leader is what a Maker asks of the core's leader, on its own server.
type leader struct{ *server.Server }

// SetConsumer implements Core.
func (l leader) SetConsumer(ctx context.Context,
	r *clusterpb.SetConsumerRequest) (*clusterpb.SetConsumerResponse, error) {
	return l.Consumers().Set(ctx, r)
}

// DeleteConsumer implements Core.
func (l leader) DeleteConsumer(ctx context.Context,
	r *clusterpb.DeleteConsumerRequest) (*clusterpb.DeleteConsumerResponse, error) {
	return l.Consumers().Delete(ctx, r)
}

// CreateKeyspace implements Core.
func (l leader) CreateKeyspace(ctx context.Context,
	r *clusterpb.CreateKeyspaceRequest) (*clusterpb.CreateKeyspaceResponse, error) {
	return l.Keyspaces().Create(ctx, r)
}

// DropKeyspace implements Core.
func (l leader) DropKeyspace(ctx context.Context,
	r *clusterpb.DropKeyspaceRequest) (*clusterpb.DropKeyspaceResponse, error) {
	return l.Keyspaces().Drop(ctx, r)
}

// Publish implements Core.
func (l leader) Publish(ctx context.Context, names map[string]string) error {
	return l.Keyspaces().Publish(ctx, names)
}
