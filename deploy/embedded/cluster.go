package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/deploy/embedded/buildversion"
	"github.com/tidemarkdb/tidemark/deploy/embedded/clustersecret"
	"github.com/tidemarkdb/tidemark/deploy/embedded/web"
)

// ClusterConfig configures a Cluster.
type ClusterConfig struct {
	// Dir holds a directory for each server. The same directory with the same numbers goes on with
	// the same cluster.
	Dir string
	// Nodes is the number of data nodes, Cores that of core members: 1, 3 or 5. The first Cores
	// servers are members of the core, the first Nodes servers are data nodes; there are as many
	// servers as the larger of the two.
	Nodes, Cores int
	// Listen is the address of the first server; the others take the ports after it. Port 0 takes
	// free ports.
	Listen string
	// HTTP is the address for metrics, health and profiles of the whole process; empty: none.
	HTTP string
	// MemoryLimit is how many bytes of memory the servers may use together. Each has the same part of
	// it. Default: as of ServerConfig.MemoryLimit, or the least with which the servers run, if that
	// is more.
	MemoryLimit int64
	// Version is what the servers call their version; see ServerConfig.
	Version string
	Logger  *slog.Logger
	// Configure may change the configuration of each server before it starts; optional.
	Configure func(server int, c *ServerConfig)
}

// Cluster is a whole cluster in this process. Its servers talk to each other as they would on
// machines of their own.
type Cluster struct {
	servers []*Server
	configs []ServerConfig
	http    *web.Server
}

// StartCluster starts all servers. They form a core and join it by themselves: see WaitReady.
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
	c := &Cluster{}
	secret := ""
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
			for _, l := range listeners[len(c.servers):] {
				_ = l.Close()
			}
		}
	}()
	if !loopback(addresses[0]) {
		if secret, err = clustersecret.OfCluster(config.Dir); err != nil {
			return nil, err
		}
	}
	limit := memoryOfEach(config.MemoryLimit, count)
	var gatherers prometheus.Gatherers
	for i := range count {
		s := ServerConfig{
			Dir: filepath.Join(config.Dir, "server-"+strconv.Itoa(i+1)), Listen: addresses[i],
			Core: addresses[:config.Cores], SecretFile: secret,
			Registry: prometheus.NewRegistry(), Logger: config.Logger, Version: config.Version,
			MemoryLimit: limit,
			NewListener: func(string) (net.Listener, error) { return listeners[i], nil },
		}
		if s.Logger != nil {
			s.Logger = s.Logger.With("server", i+1)
		}
		if i < config.Cores {
			s.Roles = append(s.Roles, RoleCore)
		}
		if i < config.Nodes {
			s.Roles = append(s.Roles, RoleNode)
		}
		if config.Configure != nil {
			config.Configure(i+1, &s)
		}
		labelled := prometheus.Labels{"server": strconv.Itoa(i + 1)}
		gatherers = append(gatherers, web.LabelledGatherer{Gatherer: s.Registry, Labels: labelled})
		server, err := StartServer(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("server %d: %w", i+1, err)
		}
		c.servers = append(c.servers, server)
		c.configs = append(c.configs, s)
	}
	if config.HTTP != "" {
		if config.Version == "" {
			config.Version = buildversion.Read().Version
		}
		if c.http, err = web.Start(config.HTTP,
			serveHTTP(withProcess(gatherers, config.Version), c.Ready, c.debugPages,
				web.Administrators{}, nil, nil, nil), func(a string) (net.Listener, error) {
				return net.Listen("tcp",
					a)
			}); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// listenAll takes the addresses first, so that all servers know each other's before any of them
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

// Endpoints returns the addresses of all servers.
func (c *Cluster) Endpoints() []string {
	var out []string
	for _, s := range c.configs {
		out = append(out, s.Listen)
	}
	return out
}

// Server returns one of the servers, counted from 0.
func (c *Cluster) Server(i int) *Server { return c.servers[i] }

// Ready says whether all servers are ready, or why one is not.
func (c *Cluster) Ready() (bool, string) {
	for i, s := range c.servers {
		if ok, reason := s.Ready(); !ok {
			return false, fmt.Sprintf("server %d: %s", i+1, reason)
		}
	}
	return true, ""
}

// WaitReady waits until all servers are ready, one has failed, or the context ends; the error then
// says what it was waiting for.
func (c *Cluster) WaitReady(ctx context.Context) error {
	for i, s := range c.servers {
		if err := s.WaitReady(ctx); err != nil {
			return fmt.Errorf("server %d: %w", i+1, err)
		}
		if err := s.etcd.waitCoordination(ctx); err != nil {
			return fmt.Errorf("server %d: %w", i+1, err)
		}
	}
	return nil
}

// Close stops all servers. Everything acknowledged is on disk.
func (c *Cluster) Close() error {
	var wg sync.WaitGroup
	errs := make([]error, len(c.servers)+1)
	if c.http != nil {
		errs[len(c.servers)] = c.http.Close()
	}
	for i, s := range c.servers {
		wg.Go(func() { errs[i] = s.Close(context.Background()) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
