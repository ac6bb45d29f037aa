package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/process"
	"github.com/tidemarkdb/tidemark/deploy/embedded/clustersecret"
)

// Server is one server of a cluster. All its processes use the same directory and addresses.
type Server struct {
	Name   string
	Dir    string
	Listen string
	HTTP   string
	// Advertise is the address at which others reach the server, if it differs from Listen.
	Advertise string
	// Roles is the value of --roles, and Core is the value of --core. Flags come after these two.
	Roles, Core string
	Flags       []string
	// Command, if set, returns the command to run instead of the given program with its arguments.
	Command func(path string, args []string) (string, []string)

	// Binary is the program. Secret is the file with the secret of the cluster. It is empty if the
	// cluster has no secret.
	Binary, Secret string
	// Log is the file to which the server's processes write, one after the other.
	Log string

	mu struct {
		sync.Mutex
		process *process.Process
	}
}

// Cluster is a set of servers that belong together.
type Cluster struct {
	Cores []*Server
	Nodes []*Server
}

// Layout describes the parts of a cluster.
type Layout struct {
	// Binary is the program. Dir is the directory for the servers' directories and logs.
	Binary, Dir string
	// Cores and Nodes are the numbers of core servers and of data nodes. A server has one role.
	Cores, Nodes int
	// NodeDir, if set, gives the directory of a node (counted from 0) instead of one below Dir.
	NodeDir func(i int) string
	// Configure, if set, may change each server before files are made for it. Servers count from 0,
	// the core servers first.
	Configure func(i int, s *Server)
}

// NewCluster chooses addresses and directories. It starts no server.
func NewCluster(l Layout) (*Cluster, error) {
	n := l.Cores + l.Nodes
	addresses, err := process.FreeAddresses(2 * n)
	if err != nil {
		return nil, err
	}
	listen, admin := addresses[:n], addresses[n:]
	cluster := &Cluster{}
	var core []string
	for i := range n {
		s := &Server{Listen: listen[i], HTTP: admin[i], Binary: l.Binary}
		if i < l.Cores {
			s.Name, s.Roles = fmt.Sprintf("core%d", i+1), "core"
			s.Dir = filepath.Join(l.Dir, s.Name)
			cluster.Cores = append(cluster.Cores, s)
		} else {
			s.Name, s.Roles = fmt.Sprintf("node%d", i-l.Cores+1), "node"
			s.Dir = filepath.Join(l.Dir, s.Name)
			if l.NodeDir != nil {
				s.Dir = l.NodeDir(i - l.Cores)
			}
			cluster.Nodes = append(cluster.Nodes, s)
		}
		s.Log = filepath.Join(l.Dir, s.Name+".log")
		if l.Configure != nil {
			l.Configure(i, s)
		}
		if i < l.Cores {
			core = append(core, s.Address())
		}
	}
	secret := filepath.Join(l.Dir, "cluster.Secret")
	if err := writeSecret(secret); err != nil {
		return nil, err
	}
	for _, s := range cluster.All() {
		s.Core = strings.Join(core, ",")
		s.Secret = secret
	}
	return cluster, nil
}

// writeSecret creates the file with the secret of a cluster, unless the file exists.
func writeSecret(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(clustersecret.New()), 0o600)
}

// All returns all servers, the core servers first.
func (c *Cluster) All() []*Server {
	return append(append([]*Server(nil), c.Cores...), c.Nodes...)
}

// Endpoints returns the addresses for clients: the addresses of the nodes.
func (c *Cluster) Endpoints() []string {
	var endpoints []string
	for _, s := range c.Nodes {
		endpoints = append(endpoints, s.Address())
	}
	return endpoints
}

// Address returns the address at which others reach the server.
func (s *Server) Address() string {
	if s.Advertise != "" {
		return s.Advertise
	}
	return s.Listen
}

// Start starts every server and waits until all are ready.
func (c *Cluster) Start(ctx context.Context) error {
	for _, s := range c.All() {
		if err := s.Start(); err != nil {
			return err
		}
	}
	return c.WaitReady(ctx)
}

// WaitReady waits until every server reports that it is ready.
func (c *Cluster) WaitReady(ctx context.Context) error {
	for _, s := range c.All() {
		if err := s.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close kills the servers that run.
func (c *Cluster) Close() error {
	var failures []error
	for _, s := range c.All() {
		if err := s.Kill(); err != nil {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// KillAll kills every server as nearly at the same time as possible, and returns when all processes
// are gone.
func (c *Cluster) KillAll() error {
	var killed []*process.Process
	for _, s := range c.All() {
		if p := s.Process(); p != nil {
			if err := p.Signal(syscall.SIGKILL); err != nil {
				return err
			}
			killed = append(killed, p)
		}
	}
	for _, p := range killed {
		<-p.Done()
	}
	return nil
}

// Arguments returns the arguments of the server's command line.
func (s *Server) Arguments() []string {
	args := []string{"start", "--dir", s.Dir, "--listen", s.Listen, "--core", s.Core, "--roles",
		s.Roles, "--http", s.HTTP}
	if s.Advertise != "" {
		args = append(args, "--advertise", s.Advertise)
	}
	if s.Secret != "" {
		args = append(args, "--secret-file", s.Secret)
	}
	return append(args, s.Flags...)
}

// Start starts a process on the server's directory. The former process must have ended.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.process != nil && s.mu.process.Running() {
		return fmt.Errorf("%s runs already", s.Name)
	}
	path, args := s.Binary, s.Arguments()
	if s.Command != nil {
		path, args = s.Command(path, args)
	}
	started, err := process.Start(process.Config{Name: s.Name, Path: path, Args: args, Log: s.Log})
	if err != nil {
		return err
	}
	s.mu.process = started
	return nil
}

// Process returns the server's latest process. It is nil before the first start.
func (s *Server) Process() *process.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.process
}

// Kill ends the server with kill -9. It is no error if the server does not run.
func (s *Server) Kill() error {
	if p := s.Process(); p != nil {
		return p.Kill()
	}
	return nil
}

// Stop ends the server with SIGTERM. It returns an error if the server does not end by itself.
func (s *Server) Stop(patience time.Duration) error {
	if p := s.Process(); p != nil {
		return p.Stop(patience)
	}
	return nil
}

// Ready asks /readyz once.
func (s *Server) Ready(ctx context.Context) error {
	_, err := s.Page(ctx, "/readyz")
	return err
}

// WaitReady waits until /readyz reports that the server is ready. It stops when ctx or the process
// ends.
func (s *Server) WaitReady(ctx context.Context) error {
	return process.Until(ctx, s.Name+" is ready", 50*time.Millisecond, s.Ready, s.Process())
}

// adminClient keeps no connections, because a kept connection may lead to a server that was killed.
var adminClient = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
	DisableKeepAlives: true}}

// Page gets a page of the server's administrative address.
func (s *Server) Page(ctx context.Context, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.HTTP+path, nil)
	if err != nil {
		return "", err
	}
	response, err := adminClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := readAll(response.Body)
	if err != nil {
		return "", fmt.Errorf("%s of %s: %w", path, s.Name, err)
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s of %s: %s: %s", path, s.Name, response.Status, FirstLine(body))
	}
	return body, nil
}
