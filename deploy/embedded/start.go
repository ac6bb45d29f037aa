package embedded

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded/backup"
	"github.com/tidemarkdb/tidemark/deploy/embedded/clusterauth"
	"github.com/tidemarkdb/tidemark/deploy/embedded/datadir"
	"github.com/tidemarkdb/tidemark/deploy/embedded/passedon"
	"github.com/tidemarkdb/tidemark/deploy/embedded/recentlog"
	"github.com/tidemarkdb/tidemark/deploy/embedded/releasemark"
	"github.com/tidemarkdb/tidemark/deploy/embedded/web"
	"github.com/tidemarkdb/tidemark/placement/server/coordination"
	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/slowlog"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/backuppb"
	"github.com/tidemarkdb/tidemark/rpc/block"
	"github.com/tidemarkdb/tidemark/rpc/callspans"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/diagnosispb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/limit"
	"github.com/tidemarkdb/tidemark/rpc/metric/prom"
)

// StartServer starts a server and returns when its address answers. The server joins or forms the
// cluster in the background; see Ready and WaitReady. A permanent failure of that ends the server;
// see Done and Err.
func StartServer(_ context.Context, config ServerConfig) (_ *Server, err error) {
	if err := config.ensureDefaults(); err != nil {
		return nil, err
	}
	lines := new(recentlog.Lines)
	config.Logger = slog.New(recentlog.NewHandler(config.Logger.Handler(), lines))
	if err := CheckElections(config.Tick, config.ElectionTicks, config.MaxOffset); err != nil {
		config.Logger.Warn("the election timeout is too short for the clocks", "error", err)
	}
	e := &environment{life: newLife(config.Logger), config: config, recentLog: lines}
	member := &coreMember{environment: e}
	node := &dataNode{environment: e, member: member}
	s := &Server{environment: e, member: member, node: node,
		etcd: &etcdAPI{environment: e, member: member}}
	member.etcd, member.notReady, member.diskSlow = s.etcd, s.notReady, node.diskSlow
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
	if err := member.chooseRoles(); err != nil {
		return nil, err
	}
	var memoryFrom string
	if s.memory, memoryFrom, err = divideMemory(&s.config); err != nil {
		return nil, err
	}
	if err := s.directory.MustHaveLogs(s.config.Roles); err != nil {
		return nil, err
	}
	if err := s.directory.MustBeRecovered(config.Logger); err != nil {
		return nil, err
	}
	if err := s.directory.MustSupport(*config.levels); err != nil {
		return nil, err
	}
	s.cluster.Store(uint64(s.directory.Identity().Cluster))
	s.clock = config.clock()
	if s.peers, err = peerPolicy(&s.config, s.tls, s.cluster.Load() != 0); err != nil {
		return nil, err
	}
	s.dialer = client.NewDialer(client.DialerConfig{Dial: config.Dial, TLSNow: clientTLS,
		Secret: s.peers.Secret, Logger: config.Logger})
	member.backups = backup.NewPart(backup.PartConfig{OpenSender: e.openSender,
		OpenTarget: config.OpenTarget, Clock: s.clock, Conn: s.dialer.Conn, Version: config.Version,
		WorkerConfig: backup.WorkerConfig{Random: config.Random, Logger: config.Logger,
			Busy: func(now time.Time) bool {
				n := node.node()
				return n != nil && n.Busy(now)
			},
			Wall: node.wall,
			Self: func() (uint64, keys.NodeID) { return s.cluster.Load(), keys.NodeID(node.id.Load()) }}})
	s.core = coreclient.New(coreclient.Config{
		Core: member.seeds(), Learned: member.learnedMembers, Conn: s.dialer.Conn, Cluster: s.cluster.Load,
		Random: config.Random, Unreachable: s.dialer.Unreachable, Logger: config.Logger,
	})
	if s.auth, err = openAuthFollower(&s.config, s.directory, s.core, s.peers,
		node.wake); err != nil {
		return nil, err
	}
	if s.level, err = releasemark.New(releasemark.Config{Supported: *config.levels,
		Kept: s.directory.Levels(), Save: s.directory.SetLevels, Changed: node.wake,
		Logger: config.Logger, Registerer: config.Registry}); err != nil {
		return nil, err
	}
	// This comes before the member of the core stores its address in the directory. So a start that
	// fails because the address is in use stores nothing.
	if s.listener, err = config.NewListener(config.Listen); err != nil {
		return nil, web.CannotListen(config.Listen, err)
	}
	if s.config.has(RoleCore) {
		if err := member.openBootstrap(); err != nil {
			return nil, err
		}
	}
	s.etcd.Spans = callspans.New(callspans.Config{Provider: config.Traces, Server: config.Advertise,
		Rate: config.TraceRate, Slow: cmp.Or(config.SlowThreshold, slowlog.DefaultThreshold)})
	if s.gateway, err = s.etcd.newGateway(); err != nil {
		return nil, err
	}
	s.serve(serverTLS)
	s.config.Logger.Info("listening", "address", s.listener.Addr(), "advertise", config.Advertise,
		"roles", s.config.Roles, memoryDivided(s.memory, memoryFrom))
	if config.HTTP != "" {
		who := web.Administrators{All: config.HTTPDebugForAll, TLS: s.tls != nil,
			Names: config.TLSAdmins}
		if s.console, err = s.newConsole(who); err != nil {
			return nil, err
		}
		pages := serveHTTP(withProcess(config.Registry, config.Version), s.Ready, s.debugPages, who,
			s.cpu, s.gateway, &etcdChecks{s.etcd}, s.console)
		pages.ErrorLog = slog.NewLogLogger(config.Logger.Handler(), slog.LevelInfo)
		if s.http, err = web.Start(config.HTTP, pages, s.listenHTTP); err != nil {
			return nil, err
		}
	}
	s.running.Go(func() { s.auth.Run(s.ctx) })
	s.running.Go(func() { s.level.Run(s.ctx) })
	if member.bootstrap != nil {
		s.begin(member.run)
	}
	if s.config.has(RoleNode) {
		s.begin(node.run)
	}
	return s, nil
}

// listenHTTP listens for HTTP, with TLS if the main port has it. Clients need no certificate there,
// but a certificate that is shown is checked.
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

// serve registers the services and answers from now on.
func (s *Server) serve(tlsConfig *tls.Config) {
	s.cpu = limit.NewCPULimiter()
	requests := limit.NewRequestMemory(s.memory.Requests)
	callers := &passedon.Clients{Peers: s.peers, CertificateUsers: s.config.TLSCA != ""}
	api := s.etcd
	api.clients, api.answers = callers, limit.NewResponseBudget(s.memory.Answers)
	api.forwarder = api.newForwarder()
	api.Substitute, api.Client = api.withoutCoordination, callers.OfCall
	page := api.newMetrics()
	s.clientHTTP = web.ServeHanded(s.listener.Addr(), clientPages(s.gateway, s.Ready,
		&etcdChecks{api}, web.Limited(s.cpu, page), s.config.Logger))
	s.rpc = rpc.NewServer(rpc.ServerConfig{TLS: tlsConfig, Peers: s.peers, CPU: s.cpu,
		MaxStreams: s.config.MaxStreams, HTTP: s.clientHTTP.Take,
		Memory: requests, MaxInbound: s.memory.Receiving, PassedOn: callers.ForwardedFor,
		Registry: prom.Registry(s.config.Registry)})
	s.calls = api.newCallServer()
	api.Register(s.calls, calledServices...)
	took, latencies := requestTimes(s.config.Registry)
	s.node.latencies = latencies
	s.clients = rpc.NewBatchServer(rpc.BatchServerConfig{
		Memory: requests,
		Take:   s.node.take, Calls: s.calls, Guard: s.auth.judge(),
		RequiresAuth: s.node.requiresAuth,
		Unpacked:     func(q *kvpb.Request) int { return block.Decoded(q.GetLoad().GetBlock()) },
		Permissions:  s.node.permissions, Cluster: s.cluster.Load,
		CertificateUsers: tlsConfig != nil && s.config.TLSCA != "", Logger: s.config.Logger,
		Registry: prom.Registry(s.config.Registry), Took: took,
	})
	s.node.clients = s.clients
	s.rpc.ServeClients(s.clients)
	clusterpb.RegisterCoreServer(s.rpc, &coreService{member: s.member, node: s.node})
	s.examiner = s.newExaminer()
	diagnosispb.RegisterDiagnosisServer(s.rpc, s.examiner)
	judge := &clusterauth.Judge{Member: s.member.judges, Clients: callers}
	clusterpb.RegisterClusterServer(judge.Before(s.rpc), s.clusterService())
	parts := func(cluster uint64) (core, part *store.Store, err error) {
		return s.member.server().Parts(cluster)
	}
	clusterpb.RegisterCoordinationServer(s.rpc, coordination.NewService(parts))
	backuppb.RegisterWorkerServer(s.rpc, s.member.backups.Worker)
	clusterpb.RegisterAuthorityServer(s.rpc, coordination.NewUsers(parts))
	api.Register(s.rpc, etcdServices...)
	if s.member.bootstrap != nil {
		clusterpb.RegisterBootstrapServer(s.rpc, s.member.bootstrap)
	}
	s.running.Go(func() {
		if err := s.rpc.Serve(s.listener); err != nil && s.ctx.Err() == nil {
			s.failed(fmt.Errorf("serving on %s: %w", s.config.Listen, err))
		}
	})
}
