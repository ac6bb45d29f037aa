package kvtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// dataDir is where every server keeps its data, on its own disk.
const dataDir = "/tidemark"

// server is one server: what stays when its process ends, and the process.
type server struct {
	cluster *Cluster
	index   int
	host    string
	disk    *Disk
	clock   *Clock
	process atomic.Pointer[embedded.Server] // nil while it is down
	// isolated: the test cut it off; see Cluster.Isolate. paused: see Cluster.Pause.
	isolated atomic.Int32
	paused   atomic.Bool
	// life is of the process that was started last.
	life atomic.Pointer[life]
}

// life is one process of a server, as the others see it.
type life struct {
	number int
	began  time.Time
	// over: its power was taken, and nothing that it says reaches a server.
	over atomic.Bool
}

// born begins the next life.
func (s *server) born() *life {
	l := &life{number: 1, began: time.Now()}
	if last := s.life.Load(); last != nil {
		l.number = last.number + 1
	}
	s.life.Store(l)
	return l
}

func (s *server) address() string { return s.host + ":7400" }

func (s *server) running() *embedded.Server { return s.process.Load() }

// Config is the configuration with which a server is started next; for starting one by hand.
func (c *Cluster) Config(server int) embedded.ServerConfig { return c.servers[server].config() }

// memoryOfTest is how much memory the servers of a cluster may use together, and leastMemory how
// much each may use at least.
const memoryOfTest, leastMemory = 4 << 30, 256 << 20

func (s *server) config() embedded.ServerConfig {
	c := s.cluster
	config := embedded.ServerConfig{
		Dir: dataDir, Listen: s.address(), Core: c.core(), Roles: c.options.roles(s.index),
		Logger: c.logger.With("server", s.index), FS: s.disk.mount(), Physical: s.clock,
		Monotonic:   s.clock.Monotonic,
		NewListener: func(a string) (net.Listener, error) { return c.network.Listen(a) },
		Dial:        c.network.Dialer(s.host), Random: c.source(), PeerFilter: c.messages.filter(
			s.index, s.born()),
		// Many servers share the memory of a test, the same on all machines; and a sync on such a disk
		// copies the whole file.
		MemoryLimit: max(memoryOfTest/int64(len(c.servers)), leastMemory),
		CacheBytes:  8 << 20, MemTableBytes: 1 << 20, LogMemTableBytes: 256 << 10,
	}
	if c.options.Configure != nil {
		c.options.Configure(s.index, &config)
	}
	return config
}

// ErrRunning is returned for what can only be done to a server that is down.
var ErrRunning = errors.New("the server is running")

// Process is a server's process, or nil while it is down.
func (c *Cluster) Process(server int) *embedded.Server { return c.servers[server].running() }

// Disk is a server's disk.
func (c *Cluster) Disk(server int) *Disk { return c.servers[server].disk }

// Clock is a server's wall clock.
func (c *Cluster) Clock(server int) *Clock { return c.servers[server].clock }

// Run starts a server that is down. It becomes ready behind this call: see WaitReady.
func (c *Cluster) Run(server int) error {
	s := c.servers[server]
	if s.running() != nil {
		return fmt.Errorf("server %d: %w", server, ErrRunning)
	}
	process, err := embedded.StartServer(context.Background(), s.config())
	if err != nil {
		return fmt.Errorf("server %d: %w", server, err)
	}
	s.process.Store(process)
	return nil
}

// Stop ends a server's process as its operator would; nothing happens if it is down.
func (c *Cluster) Stop(server int) error {
	process := c.servers[server].process.Swap(nil)
	if process == nil {
		return nil
	}
	c.Resume(server)
	s := c.servers[server]
	s.disk.closing.Store(true)
	s.disk.release()
	defer s.disk.closing.Store(false)
	return process.Stop(context.Background())
}

// end ends a server's process without handing anything over; nothing happens if it is down.
func (c *Cluster) end(server int) error {
	process := c.servers[server].process.Swap(nil)
	if process == nil {
		return nil
	}
	c.Resume(server)
	return c.servers[server].close(process)
}

// close closes a process over a disk that takes no time: see Disk.SetSyncDelay.
func (s *server) close(process *embedded.Server) error {
	s.disk.closing.Store(true)
	s.disk.release()
	defer s.disk.closing.Store(false)
	return process.Close(context.Background())
}

// Kill takes the power from a server. Of what was written and not synced each block survives with a
// probability, in percent. Nothing happens if it is down.
func (c *Cluster) Kill(server, unsyncedPercent int) { c.KillAll(unsyncedPercent, server) }

// KillAll is Kill for several servers, at the same moment: none of them does anything more after
// another's end. (To kill them one by one takes as long as what their disks are doing, and
// meanwhile the others go on.)
func (c *Cluster) KillAll(unsyncedPercent int, servers ...int) {
	ended := make(map[*server]*embedded.Server)
	// The network first: what was said until now was true on the disks that are copied afterwards.
	for _, i := range servers {
		s := c.servers[i]
		process := s.process.Swap(nil)
		if process == nil {
			continue
		}
		ended[s] = process
		if l := s.life.Load(); l != nil {
			l.over.Store(true)
		}
		c.network.Isolate(s.host, memnet.Break)
		c.network.DropHost(s.host)
		s.paused.Store(false)
	}
	for _, i := range servers {
		if s := c.servers[i]; ended[s] != nil {
			s.disk.crash(unsyncedPercent, c.random())
		}
	}
	for _, i := range servers {
		s := c.servers[i]
		if ended[s] == nil {
			continue
		}
		// What the former process finds wrong with the world that was taken from it is of no
		// interest.
		s.clock.pause(false)
		_ = s.close(ended[s])
		s.follow()
	}
}

// follow gives the server's host in the network what was done to the server.
func (s *server) follow() {
	mode := memnet.Mode(s.isolated.Load())
	if s.paused.Load() {
		mode = max(mode, memnet.Stall)
	}
	if mode == 0 {
		s.cluster.network.Rejoin(s.host)
	} else {
		s.cluster.network.Isolate(s.host, mode)
	}
}

// Restart stops a server if it runs, and starts it.
func (c *Cluster) Restart(server int) error {
	if err := c.Stop(server); err != nil {
		return err
	}
	return c.Run(server)
}

// Wipe empties the disk of a server that is down.
func (c *Cluster) Wipe(server int) error {
	s := c.servers[server]
	if s.running() != nil {
		return fmt.Errorf("server %d: %w", server, ErrRunning)
	}
	s.disk.wipe()
	return nil
}

// random is a new source of randomness.
func (c *Cluster) random() *rand.Rand {
	c.mu.Lock()
	defer c.mu.Unlock()
	return rand.New(rand.NewPCG(c.mu.random.Uint64(), c.mu.random.Uint64()))
}

// Isolate cuts a server off from all others and from all clients.
func (c *Cluster) Isolate(server int, mode memnet.Mode) {
	s := c.servers[server]
	s.isolated.Store(int32(mode))
	s.follow()
}

// Rejoin ends Isolate.
func (c *Cluster) Rejoin(server int) {
	s := c.servers[server]
	s.isolated.Store(0)
	s.follow()
}

// Cut cuts the direction between two servers.
func (c *Cluster) Cut(from, to int, mode memnet.Mode) {
	c.network.Cut(c.Host(from), c.Host(to), mode)
}

// HealAll ends all cuts, isolations and pauses.
func (c *Cluster) HealAll() {
	c.network.HealAll()
	for i := range c.servers {
		c.Resume(i)
		c.Rejoin(i)
	}
}

// Heal ends the cuts between two servers, in both directions.
func (c *Cluster) Heal(a, b int) { c.network.Heal(c.Host(a), c.Host(b)) }
