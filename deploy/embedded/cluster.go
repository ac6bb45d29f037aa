package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tidemarkdb/tidemark/deploy/embedded/buildversion"
	"github.com/tidemarkdb/tidemark/deploy/embedded/clustersecret"
	"github.com/tidemarkdb/tidemark/deploy/embedded/console"
	"github.com/tidemarkdb/tidemark/deploy/embedded/isolation"
	"github.com/tidemarkdb/tidemark/deploy/embedded/web"
)

// ClusterConfig configures a Cluster.
type ClusterConfig struct {
	// Dir has a subdirectory for each server. A start with the same directory and the same numbers
	// continues the same cluster.
	Dir string
	// Nodes is the number of data nodes. Cores is the number of core members: 1, 3 or 5. The first
	// Cores servers are members of the core, and the first Nodes servers are data nodes. The number of
	// servers is the larger of the two.
	Nodes, Cores int
	// Listen is the address of the first server. The others use the ports after it. With port 0, all
	// use free ports.
	Listen string
	// HTTP is the address for metrics, health, profiles and the web console of the whole process. If
	// it is empty, there is no HTTP server. ConsoleAdmin lets users of the console make changes.
	HTTP         string
	ConsoleAdmin bool
	// MemoryLimit is the number of bytes of memory that all servers together may use. Each gets an
	// equal part. The default is that of ServerConfig.MemoryLimit, or the least with which the servers
	// run, if that is more.
	MemoryLimit int64
	// Version is the version that the servers report; see ServerConfig.
	Version string
	Logger  *slog.Logger
	// Demo, if not nil, makes the console's buttons for a cluster. With it, servers can be isolated.
	Demo func(*Cluster) console.Demo
	// Configure, if not nil, may change the configuration of each server before the server starts.
	Configure func(server int, c *ServerConfig)
}

// Cluster is a whole cluster in this process. Its servers communicate as servers on separate
// machines do. Servers can be killed, isolated, started again and added.
type Cluster struct {
	config ClusterConfig
	// addresses are the addresses of the first servers, which include the core. secret is the file
	// with the cluster's secret. limit is the memory limit of each server.
	addresses []string
	secret    string
	limit     int64
	network   isolation.Network

	// http serves the HTTP address, and console is the web console there. They are nil without an HTTP
	// address.
	http    *web.Server
	console *console.Console

	// changing is held while single servers are started or stopped.
	changing sync.Mutex
	// mu guards the following fields: the servers and their configurations, in order. Servers in
	// killed are closed.
	mu      sync.Mutex
	servers []*Server
	configs []ServerConfig
	killed  map[int]bool
}

// StartCluster starts all servers. They form a core and join it on their own: see WaitReady.
func StartCluster(ctx context.Context, config ClusterConfig) (_ *Cluster, err error) {
	if config.Dir == "" || config.Nodes < 1 || config.Cores < 1 {
		return nil, errors.New("a cluster needs a directory, at least one data node and at least " +
			"one core member")
	}
	count := max(config.Nodes, config.Cores)
	listeners, addresses, err := listenAll(config.Listen, count)
	if err != nil {
		return nil, err
	}
	if config.Version == "" {
		config.Version = buildversion.Read().Version
	}
	c := &Cluster{config: config, addresses: addresses, killed: map[int]bool{},
		limit: memoryOfEach(config.MemoryLimit, count)}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
			for _, l := range listeners[len(c.servers):] {
				_ = l.Close()
			}
		}
	}()
	if !loopback(addresses[0]) {
		if c.secret, err = clustersecret.OfCluster(config.Dir); err != nil {
			return nil, err
		}
	}
	for i := range count {
		if err := c.start(ctx, i, listeners[i]); err != nil {
			return nil, err
		}
	}
	if config.HTTP != "" {
		if c.console, err = c.newConsole(config); err != nil {
			return nil, err
		}
		if c.http, err = web.Start(config.HTTP,
			serveHTTP(withProcess(prometheus.GathererFunc(c.gather), config.Version), c.Ready,
				c.debugPages, web.Administrators{}, nil, nil, nil, c.console),
			func(a string) (net.Listener, error) { return net.Listen("tcp", a) }); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// start starts a server with its own directory, for the first time or again.
func (c *Cluster) start(ctx context.Context, i int, listener net.Listener) error {
	address := listener.Addr().String()
	s := ServerConfig{
		Dir: filepath.Join(c.config.Dir, "server-"+strconv.Itoa(i+1)), Listen: address,
		Core: c.addresses[:c.config.Cores], SecretFile: c.secret,
		Registry: prometheus.NewRegistry(), Logger: c.config.Logger, Version: c.config.Version,
		MemoryLimit: c.limit,
		NewListener: func(at string) (net.Listener, error) {
			if at == address {
				return listener, nil
			}
			return net.Listen("tcp", at)
		},
	}
	if c.config.Demo != nil {
		s.Dial, s.systemNetwork = c.network.Dialer(address), true
	}
	if s.Logger != nil {
		s.Logger = s.Logger.With("server", i+1)
	}
	if i < c.config.Cores {
		s.Roles = append(s.Roles, RoleCore)
	}
	if i < c.config.Nodes || i >= len(c.addresses) {
		s.Roles = append(s.Roles, RoleNode)
	}
	if c.config.Configure != nil {
		c.config.Configure(i+1, &s)
	}
	server, err := StartServer(ctx, s)
	if err != nil {
		return fmt.Errorf("server %d: %w", i+1, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if i == len(c.servers) {
		c.servers, c.configs = append(c.servers, server), append(c.configs, s)
	} else {
		c.servers[i], c.configs[i] = server, s
	}
	delete(c.killed, i)
	return nil
}

// gather returns the metrics of the running servers.
func (c *Cluster) gather() ([]*dto.MetricFamily, error) {
	var gatherers prometheus.Gatherers
	c.mu.Lock()
	for i := range c.servers {
		if !c.killed[i] {
			gatherers = append(gatherers, web.LabelledGatherer{Gatherer: c.configs[i].Registry,
				Labels: prometheus.Labels{"server": strconv.Itoa(i + 1)}})
		}
	}
	c.mu.Unlock()
	return gatherers.Gather()
}

// running returns the servers that were not killed.
func (c *Cluster) running() (all []*Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, s := range c.servers {
		if !c.killed[i] {
			all = append(all, s)
		}
	}
	return all
}

// guarded reports whether authentication is enabled, as far as any server knows.
func (c *Cluster) guarded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.servers, func(s *Server) bool { return s.auth.Enabled() })
}

// State returns the state of a server of a Cluster.
func (c *Cluster) State(i int) (address string, node uint64, core, killed, cut bool) {
	c.mu.Lock()
	s, config, killed := c.servers[i], &c.configs[i], c.killed[i]
	c.mu.Unlock()
	return config.Listen, s.NodeID(), config.has(RoleCore), killed, c.network.IsCut(config.Listen)
}

// Size returns the number of servers, including those that were killed.
func (c *Cluster) Size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.servers)
}

// pick returns a server that was killed, or one that is running.
func (c *Cluster) pick(i int, killed bool) (*Server, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case i < 0 || i >= len(c.servers):
		return nil, fmt.Errorf("there is no server %d: the cluster has %d", i+1, len(c.servers))
	case killed && !c.killed[i]:
		return nil, fmt.Errorf("server %d runs", i+1)
	case !killed && c.killed[i]:
		return nil, fmt.Errorf("server %d is stopped", i+1)
	}
	return c.servers[i], nil
}

// Kill stops a server at once, as the end of its process would. Its leaderships are replaced by
// elections. Servers are counted from 0.
func (c *Cluster) Kill(ctx context.Context, i int) error {
	c.changing.Lock()
	defer c.changing.Unlock()
	s, err := c.pick(i, false)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.killed[i] = true
	c.mu.Unlock()
	return s.Close(ctx)
}

// Restart starts a server that was killed, at its address.
func (c *Cluster) Restart(ctx context.Context, i int) error {
	c.changing.Lock()
	defer c.changing.Unlock()
	s, err := c.pick(i, true)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", s.config.Listen)
	if err != nil {
		return fmt.Errorf("server %d: %w", i+1, web.CannotListen(s.config.Listen, err))
	}
	if err := c.start(context.WithoutCancel(ctx), i, l); err != nil {
		_ = l.Close()
		return err
	}
	return nil
}

// Cut isolates a server from all others and from the clients of this process, or ends the
// isolation. It requires ClusterConfig.Demo.
func (c *Cluster) Cut(i int, cut bool) error {
	s, err := c.pick(i, false)
	switch {
	case err != nil:
		return err
	case c.config.Demo == nil:
		return errors.New("the servers of this cluster cannot be cut off: it is no demo")
	case cut:
		c.network.Cut(s.config.Listen)
	default:
		c.network.Join(s.config.Listen)
	}
	return nil
}

// maxAdded limits the number of servers of a cluster to which nodes are added.
const maxAdded = 12

// Add starts one more data node, at the address after the last one, or at a free port.
func (c *Cluster) Add(ctx context.Context) error {
	c.changing.Lock()
	defer c.changing.Unlock()
	i := c.Size()
	if i >= max(maxAdded, len(c.addresses)) {
		return fmt.Errorf("the cluster has %d servers, and one process is not for more", i)
	}
	host, port, err := net.SplitHostPort(c.addresses[0])
	if err != nil {
		return err
	}
	base, _ := strconv.Atoi(port) // the port comes from package net
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(base+i)))
	if err != nil {
		if l, err = net.Listen("tcp", net.JoinHostPort(host, "0")); err != nil {
			return err
		}
	}
	if err := c.start(context.WithoutCancel(ctx), i, l); err != nil {
		_ = l.Close()
		return err
	}
	return nil
}

// Dialer returns a function that connects clients to the servers, except to isolated ones.
func (c *Cluster) Dialer() func(context.Context, string) (net.Conn, error) {
	return c.network.Dialer("")
}

// listenAll opens all listeners first, so that all servers know all addresses before any server
// starts.
func listenAll(first string, count int) (listeners []net.Listener, addresses []string, err error) {
	host, port, err := net.SplitHostPort(first)
	if err != nil {
		return nil, nil, fmt.Errorf("the address %q: %w", first, err)
	}
	base, err := strconv.Atoi(port)
	if err != nil || base < 0 || base+count > 1<<16 {
		return nil, nil, fmt.Errorf("the address %q: %d servers need that many ports from a "+
			"number below 65536 on", first, count)
	}
	for i := range count {
		p := 0
		if base != 0 {
			p = base + i
		}
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(p)))
		if err != nil {
			for _, l := range listeners {
				_ = l.Close()
			}
			return nil, nil, fmt.Errorf("server %d of %d: %w; choose another address for the "+
				"first one", i+1, count, err)
		}
		listeners = append(listeners, l)
		addresses = append(addresses, l.Addr().String())
	}
	return listeners, addresses, nil
}

// HTTPAddress returns the address of the HTTP server. It is empty if there is none.
func (c *Cluster) HTTPAddress() string {
	if c.http == nil {
		return ""
	}
	return c.http.Address
}

// Endpoints returns the addresses of all servers.
func (c *Cluster) Endpoints() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, s := range c.configs {
		out = append(out, s.Listen)
	}
	return out
}

// Server returns one of the servers, counted from 0.
func (c *Cluster) Server(i int) *Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.servers[i]
}

// Ready reports whether all servers are ready, except those that were killed. If not, it returns
// the reason.
func (c *Cluster) Ready() (bool, string) {
	for i, s := range c.running() {
		if ok, reason := s.Ready(); !ok {
			return false, fmt.Sprintf("server %d: %s", i+1, reason)
		}
	}
	return true, ""
}

// WaitReady waits until all servers are ready, one has failed, or the context ends. Its error says
// what it was waiting for.
func (c *Cluster) WaitReady(ctx context.Context) error {
	for i, s := range c.running() {
		if err := s.WaitReady(ctx); err != nil {
			return fmt.Errorf("server %d: %w", i+1, err)
		}
		if err := s.etcd.waitCoordination(ctx); err != nil {
			return fmt.Errorf("server %d: %w", i+1, err)
		}
	}
	return nil
}

// Close stops all servers. All acknowledged data is on disk.
func (c *Cluster) Close() error {
	var err error
	if c.http != nil {
		err = c.http.Close()
	}
	if c.console != nil {
		c.console.Close()
	}
	c.changing.Lock()
	defer c.changing.Unlock()
	var wg sync.WaitGroup
	running := c.running()
	errs := make([]error, len(running))
	for i, s := range running {
		wg.Go(func() { errs[i] = s.Close(context.Background()) })
	}
	wg.Wait()
	return errors.Join(append(errs, err)...)
}
