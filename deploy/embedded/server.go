package embedded

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded/coreaddr"
	"github.com/tidemarkdb/tidemark/deploy/embedded/datadir"
	"github.com/tidemarkdb/tidemark/deploy/embedded/etcdmetrics"
	"github.com/tidemarkdb/tidemark/deploy/embedded/forward"
	"github.com/tidemarkdb/tidemark/deploy/embedded/memory"
	"github.com/tidemarkdb/tidemark/deploy/embedded/web"
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/bootstrap"
	"github.com/tidemarkdb/tidemark/placement/server"
	"github.com/tidemarkdb/tidemark/placement/server/coordination"
	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/block"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/limit"
	"github.com/tidemarkdb/tidemark/rpc/metric/prom"
	"github.com/tidemarkdb/tidemark/rpc/quota"
	"github.com/tidemarkdb/tidemark/rpc/transport"
)

// Server is one server in this process.
type Server struct {
	config    ServerConfig
	directory *datadir.Directory
	// memory has the sizes of the server's parts, and memoryFrom says where the limit comes from.
	memory     *memory.Sizes
	memoryFrom string
	clock      *hlc.Clock
	dialer     *client.Dialer
	// tls are the files of the certificates; nil for plain text.
	tls     *authn.TLSFiles
	clients *rpc.BatchServer
	calls   *rpc.CallServer
	// forwarder passes calls of the etcd API on while this server does not answer them.
	forwarder *forward.Forwarder
	// etcdCluster is nil until the etcd API is served.
	etcdCluster atomic.Pointer[etcdCluster]
	core        *coreclient.Client
	bootstrap   *bootstrap.Member
	// auth says what clients may do with data, and which callers are servers.
	auth *authFollower
	// cluster is the id of the cluster, 0 until it is known.
	cluster atomic.Uint64
	// node is the data node's id, 0 until it is known.
	node atomic.Uint64

	rpc *rpc.Server
	// answers bounds what is on its way to clients of the etcd API.
	answers *limit.ResponseBudget
	// peerSecret is the cluster's; empty: none.
	peerSecret transport.Secret
	// cpu limits the processor time of clients, on all ports.
	cpu      *quota.CPULimiter
	listener net.Listener
	http     *web.Server
	services services
	// gateway is the etcd API as JSON, and clientHTTP serves it on the port of everything else.
	gateway    *web.Counted
	clientHTTP *web.Handed
	// etcdWatcher measures what etcd's metrics tell of the leader and the other members.
	etcdWatcher *etcdmetrics.Watcher

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	// parts are the core member and the data node, once they run.
	parts struct {
		sync.Mutex
		core *corePart
		node *nodePart
	}

	// members are where the core's members are.
	members coreaddr.Book
	// wasMember: the directory was that of a member of the core when the server started.
	wasMember bool
	// coreState is what this server is to the core.
	coreState atomic.Int32
	// decommissioned: the core let this server's node go. What is left is a member of the core.
	decommissioned atomic.Bool
	// coreBroken is why the core's member is left alone, if it is.
	coreBroken atomic.Pointer[error]
	// coordinationBroken is why its part of the coordination store is left alone, if it is.
	coordinationBroken atomic.Pointer[error]
	// stopping: Stop has begun.
	stopping atomic.Bool

	done     chan struct{} // closed when the server has failed or was closed
	doneOnce sync.Once
	failure  atomic.Pointer[error]
	closing  sync.Once
	closed   error
}

// StartServer starts a server and returns when its address answers. Joining or forming the cluster
// goes on behind it, as Ready and WaitReady tell; what goes wrong with that for good ends the
// server: see Done and Err.
func StartServer(_ context.Context, config ServerConfig) (_ *Server, err error) {
	if err := config.ensureDefaults(); err != nil {
		return nil, err
	}
	if err := CheckElections(config.Tick, config.ElectionTicks, config.MaxOffset); err != nil {
		config.Logger.Warn("the election timeout is too short for the clocks", "error", err)
	}
	s := &Server{config: config, done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
		}
	}()
	var serverTLS *tls.Config
	var clientTLS func() *tls.Config
	if config.TLSCert != "" {
		if s.tls, err = authn.LoadTLSFiles(authn.TLSConfig{Cert: config.TLSCert, Key: config.TLSKey,
			CA: config.TLSCA, PeerCA: config.TLSPeerCA, PeerName: config.TLSPeerName,
			Logger: config.Logger}); err != nil {
			return nil, err
		}
		serverTLS, clientTLS = s.tls.Server(true), s.tls.Client
		showExpiry(config.Registry, s.tls)
	}
	if s.directory, err = datadir.Open(config.FS, config.Dir, config.Random); err != nil {
		return nil, err
	}
	if err := s.chooseRoles(); err != nil {
		return nil, err
	}
	if err := s.divideMemory(); err != nil {
		return nil, err
	}
	if err := s.directory.MustHaveLogs(s.config.Roles); err != nil {
		return nil, err
	}
	if err := s.directory.MustBeRecovered(config.Logger); err != nil {
		return nil, err
	}
	s.cluster.Store(uint64(s.directory.Identity().Cluster))
	s.clock = config.clock()
	peers, err := s.peerPolicy()
	if err != nil {
		return nil, err
	}
	s.peerSecret = peers.Secret
	s.dialer = client.NewDialer(client.DialerConfig{Dial: config.Dial, TLSNow: clientTLS,
		Secret: peers.Secret, Logger: config.Logger})
	s.core = coreclient.New(coreclient.Config{
		Core: s.seeds(), Learned: s.learnedMembers, Conn: s.dialer.Conn, Cluster: s.cluster.Load,
		Random: config.Random, Unreachable: s.dialer.Unreachable, Logger: config.Logger,
	})
	if err := s.openAuthFollower(peers); err != nil {
		return nil, err
	}
	// Before the member of the core has its address in the directory: a start that fails because
	// the address is taken binds nothing.
	if s.listener, err = config.NewListener(config.Listen); err != nil {
		return nil, web.CannotListen(config.Listen, err)
	}
	if s.config.has(RoleCore) {
		if err := s.openBootstrap(); err != nil {
			return nil, err
		}
	}
	if s.gateway, err = s.newGateway(); err != nil {
		return nil, err
	}
	s.serve(serverTLS, peers)
	s.config.Logger.Info("listening", "address", s.listener.Addr(), "advertise", config.Advertise,
		"roles", s.config.Roles, s.memoryDivided())
	if config.HTTP != "" {
		pages := serveHTTP(withProcess(config.Registry, config.Version), s.Ready, s.debugPages,
			web.Administrators{All: config.HTTPDebugForAll, TLS: s.tls != nil,
				Names: config.TLSAdmins}, s.cpu, s.gateway, &etcdChecks{s})
		pages.ErrorLog = slog.NewLogLogger(config.Logger.Handler(), slog.LevelInfo)
		if s.http, err = web.Start(config.HTTP, pages, s.listenHTTP); err != nil {
			return nil, err
		}
	}
	s.running.Go(func() { s.auth.Run(s.ctx) })
	if s.bootstrap != nil {
		s.running.Go(func() { s.run(s.beCore) })
	}
	if config.has(RoleNode) {
		s.running.Go(func() { s.run(s.joinAsNode) })
	}
	return s, nil
}

// listenHTTP listens for HTTP, with TLS if the rest has it. Clients need no certificate there, but
// one that is shown is checked.
func (s *Server) listenHTTP(address string) (net.Listener, error) {
	l, err := s.config.NewListener(address)
	if err != nil {
		return nil, err
	}
	l = limit.ShareListener(l, maxHTTPConnections, s.cpu)
	if s.tls == nil {
		return l, nil
	}
	return tls.NewListener(l, s.tls.Server(false, "http/1.1")), nil
}

// ReloadCertificates reads the TLS files again, now. Without it a handshake notices, within a
// second, that they have changed. An error leaves in use what was read before.
func (s *Server) ReloadCertificates() error {
	if s.tls == nil {
		return nil
	}
	return s.tls.Reload()
}

// run runs one part's start; an error is the end of the server.
func (s *Server) run(start func(context.Context) error) {
	if err := start(s.ctx); err != nil && s.ctx.Err() == nil {
		s.failed(err)
	}
}

// serve registers the services and answers from now on.
func (s *Server) serve(tlsConfig *tls.Config, peers *authn.PeerPolicy) {
	s.services.server = s
	s.services.core.inform, s.services.core.wake = s.core.Learn, s.services.wake
	s.cpu, s.answers = limit.NewCPULimiter(), limit.NewResponseBudget(s.memory.Answers)
	requests := limit.NewRequestMemory(s.memory.Requests)
	s.forwarder = s.newForwarder(peers)
	s.services.etcd.otherwise, s.services.etcd.client = s.withoutCoordination, s.clientOfCall
	page := s.newEtcdMetrics()
	s.clientHTTP = web.ServeHanded(s.listener.Addr(), clientPages(s.gateway, s.Ready,
		&etcdChecks{s}, web.Limited(s.cpu, page), s.config.Logger))
	s.rpc = rpc.NewServer(rpc.ServerConfig{TLS: tlsConfig, Peers: peers, CPU: s.cpu,
		MaxStreams: s.config.MaxStreams, HTTP: s.clientHTTP.Take,
		Memory: requests, MaxInbound: s.memory.Receiving, PassedOn: s.passedOnFor,
		Registry: prom.Registry(s.config.Registry)})
	s.calls = s.newCallServer()
	s.services.etcd.register(s.calls, calledServices...)
	s.clients = rpc.NewBatchServer(rpc.BatchServerConfig{
		Memory: requests,
		Take:   s.services.take, Calls: s.calls, Guard: s.auth.judge(),
		RequiresAuth: s.services.requiresAuth,
		Unpacked:     func(q *kvpb.Request) int { return block.Decoded(q.GetLoad().GetBlock()) },
		Permissions:  s.services.permissions, Cluster: s.cluster.Load,
		CertificateUsers: tlsConfig != nil && s.config.TLSCA != "", Logger: s.config.Logger,
		Registry: prom.Registry(s.config.Registry), Took: requestTimes(s.config.Registry),
	})
	s.rpc.ServeClients(s.clients)
	clusterpb.RegisterCoreServer(s.rpc, &s.services.core)
	clusterpb.RegisterClusterServer(clusterRegistrar{s.rpc, s}, s.clusterService())
	parts := func(cluster uint64) (core, part *store.Store, err error) {
		return s.coreServer().Parts(cluster)
	}
	clusterpb.RegisterCoordinationServer(s.rpc, coordination.NewService(parts))
	clusterpb.RegisterAuthorityServer(s.rpc, coordination.NewUsers(parts))
	s.services.etcd.register(s.rpc, etcdServices...)
	if s.bootstrap != nil {
		clusterpb.RegisterBootstrapServer(s.rpc, s.bootstrap)
	}
	s.running.Go(func() {
		if err := s.rpc.Serve(s.listener); err != nil && s.ctx.Err() == nil {
			s.failed(fmt.Errorf("serving on %s: %w", s.config.Listen, err))
		}
	})
}

// joinAsNode starts the data node. One that knows its id starts at once from its disk, and tells
// the core that it is there as soon as that answers.
func (s *Server) joinAsNode(ctx context.Context) error {
	known := s.known()
	p, err := s.startNode(ctx)
	if err != nil {
		return err
	}
	s.parts.Lock()
	s.parts.node = p
	s.parts.Unlock()
	s.services.node.Store(p.node)
	if !known {
		s.config.Logger.Info("joined the cluster", "node", p.node.ID(), "cluster",
			s.directory.Identity().Cluster)
		return nil
	}
	_, err = s.register(ctx)
	if server.Decommissioned(err) && s.bootstrap != nil && s.bootstrap.Membership() != nil {
		// Its node holds nothing that is asked for, and the core may need this member.
		s.decommissioned.Store(true)
		s.config.Logger.Error("THE NODE OF THIS SERVER WAS DECOMMISSIONED; it goes on as a member of "+
			"the core", "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	s.config.Logger.Info("the core knows this node again", "node", p.node.ID(), "cluster",
		s.directory.Identity().Cluster)
	return nil
}

// WaitReady waits until the server is ready, has failed, or the context ends.
func (s *Server) WaitReady(ctx context.Context) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		ok, reason := s.Ready()
		if ok {
			return nil
		}
		select {
		case <-s.done:
			if err := s.Err(); err != nil {
				return err
			}
			return errors.New("the server was closed")
		case <-ctx.Done():
			return fmt.Errorf("%w while waiting for the server at %s: %s", context.Cause(ctx),
				s.config.Advertise, reason)
		case <-ticker.C:
		}
	}
}

// Done is closed when the server has failed or was closed.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err returns why the server failed; nil while it has not.
func (s *Server) Err() error {
	if p := s.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// failed ends the server for good; the owner, which sees Done, closes it.
func (s *Server) failed(err error) {
	if s.failure.CompareAndSwap(nil, &err) {
		s.config.Logger.Error("server failed", "error", err)
	}
	s.doneOnce.Do(func() { close(s.done) })
}

// diskFailed is told by the databases when a disk returns errors: nothing that it says can be
// trusted any more.
func (s *Server) diskFailed(err error) {
	s.failed(fmt.Errorf("the disk of %s failed: %w; replace it, and start again with an empty "+
		"directory", s.config.Dir, err))
}

// Close ends the server at once: what it leads is left to elections, as after a crash. Stop hands
// over first. Everything acknowledged is on disk; the context bounds how long requests under way
// may take.
func (s *Server) Close(ctx context.Context) error {
	s.closing.Do(func() {
		s.cancel()
		if s.http != nil {
			s.closed = errors.Join(s.closed, s.http.Close())
		}
		s.closed = errors.Join(s.closed, s.clientHTTP.End())
		s.gateway.Close()
		stopped := context.AfterFunc(ctx, s.rpc.Stop)
		s.rpc.Stop()
		stopped()
		s.calls.Close()
		s.closed = errors.Join(s.closed, s.release())
		s.doneOnce.Do(func() { close(s.done) })
	})
	return s.closed
}

// release gives back what was taken, in the reverse order.
func (s *Server) release() (err error) {
	s.cancel()
	if s.rpc != nil {
		err = s.clientHTTP.End()
		s.gateway.Close()
		s.rpc.Stop()
		s.calls.Close()
	} else if s.listener != nil {
		err = s.listener.Close()
	}
	s.running.Wait()
	s.parts.Lock()
	core, data := s.parts.core, s.parts.node
	s.parts.Unlock()
	if data != nil {
		err = errors.Join(err, data.close())
	}
	if core != nil {
		err = errors.Join(err, core.close())
	}
	if s.auth != nil {
		s.auth.Close()
	}
	if s.core != nil {
		s.core.Close()
	}
	if s.forwarder != nil {
		s.forwarder.Close()
	}
	if s.dialer != nil {
		err = errors.Join(err, s.dialer.Close())
	}
	if s.directory != nil {
		err = errors.Join(err, s.directory.Close())
	}
	return err
}
