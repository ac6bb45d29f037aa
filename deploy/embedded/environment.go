package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/deploy/embedded/datadir"
	"github.com/tidemarkdb/tidemark/deploy/embedded/memory"
	"github.com/tidemarkdb/tidemark/deploy/embedded/recentlog"
	"github.com/tidemarkdb/tidemark/deploy/embedded/releasemark"
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/client"
)

// environment has the objects that the parts of a server share. All of them except the cluster's id
// are set before the first part starts.
type environment struct {
	*life
	config    ServerConfig
	directory *datadir.Directory
	// memory has the sizes of the server's parts.
	memory *memory.Sizes
	clock  *hlc.Clock
	// tls has the certificate files. It is nil for plain text.
	tls *authn.TLSFiles
	// peers decides which callers have proved to be servers.
	peers  *authn.PeerPolicy
	dialer *client.Dialer
	// rpc serves everything on the server's port.
	rpc *rpc.Server
	// core reaches the leader of the core.
	core *coreclient.Client
	auth *authFollower
	// level is the cluster's level of formats and messages.
	level *releasemark.Mark
	// recentLog has the last lines of the log.
	recentLog *recentlog.Lines
	// cluster is the id of the cluster, 0 until it is known.
	cluster atomic.Uint64
}

// openDatabases opens the two databases of a part of the server.
func (e *environment) openDatabases(part string, sizes datadir.DatabaseSizes, cache *pebble.Cache,
	registerer prometheus.Registerer) (*datadir.Databases, error) {
	return e.directory.OpenDatabases(part, datadir.DatabasesConfig{Logger: e.config.Logger,
		MinFreeBytes: e.config.MinFreeBytes, MemberOfCore: e.config.has(RoleCore), Sizes: sizes,
		Cache: cache, Registerer: registerer, OnFailure: e.diskFailed, Leaving: e.ctx.Done()})
}

// openSender makes a client of the server's own cluster. The caller closes it. It has its own
// connection to each node, separate from Raft's. It follows the partition table of any server that
// answers, this server first.
func (e *environment) openSender() (*route.Sender, error) {
	config := route.Config{Endpoints: e.ownEndpoints(), Dial: e.config.Dial, Random: e.config.Random,
		Logger: e.config.Logger, Server: true, Secret: e.peers.Secret}
	if e.tls != nil {
		config.TLSNow = e.tls.Client
	}
	return route.New(config)
}

// ownEndpoints lists servers of the own cluster that a client can start with: this server, then the
// members of the core.
func (e *environment) ownEndpoints() []string {
	endpoints := []string{e.config.Advertise}
	for _, address := range e.core.Core() {
		if address != e.config.Advertise {
			endpoints = append(endpoints, address)
		}
	}
	return endpoints
}

// diskFailed stops the server when a disk returns errors, because the data of that disk cannot be
// trusted any more.
func (e *environment) diskFailed(err error) {
	e.failed(fmt.Errorf("the disk of %s failed: %w; replace it, and start again with an empty "+
		"directory", e.config.Dir, err))
}

// damaged adds advice to the error of a part that does not open because of a damaged file.
func (e *environment) damaged(part string, err error) error {
	return e.directory.Damaged(part, e.config.has(RoleCore), err)
}

// life is the lifetime of a server, from its start until it has failed or was closed. Safe for
// concurrent use.
type life struct {
	logger *slog.Logger
	// ctx ends when the server is closed.
	ctx    context.Context
	cancel context.CancelFunc
	// running counts the goroutines that end with ctx.
	running sync.WaitGroup
	// stopping is set when Stop begins.
	stopping atomic.Bool

	done    chan struct{} // closed when the server has failed or was closed
	once    sync.Once     // closes done
	failure atomic.Pointer[error]
}

func newLife(logger *slog.Logger) *life {
	l := &life{logger: logger, done: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Done returns a channel that is closed when the server has failed or was closed.
func (l *life) Done() <-chan struct{} { return l.done }

// Err returns the error with which the server failed, or nil.
func (l *life) Err() error {
	if p := l.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// failed ends the server permanently. The owner sees that by Done, and closes the server.
func (l *life) failed(err error) {
	if l.failure.CompareAndSwap(nil, &err) {
		l.logger.Error("server failed", "error", err)
	}
	l.ended()
}

// ended signals the owner that the server has failed or was closed.
func (l *life) ended() { l.once.Do(func() { close(l.done) }) }

// begin runs one part of the server until ctx ends; an error ends the server.
func (l *life) begin(part func(context.Context) error) {
	l.running.Go(func() {
		if err := part(l.ctx); err != nil && l.ctx.Err() == nil {
			l.failed(err)
		}
	})
}
