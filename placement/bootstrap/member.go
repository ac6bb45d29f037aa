package bootstrap

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/bootstrap/bootstrappb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Peers carries messages to the other listed servers; GRPCPeers implements it.
type Peers interface {
	Hello(ctx context.Context, address string, h *clusterpb.BootstrapHello) (
		*clusterpb.BootstrapHello, error)
	Accept(ctx context.Context, address string, f *clusterpb.Founding) (
		*clusterpb.BootstrapHello, error)
}

// Config configures a Member. Disk, Self, Core and Peers must be set.
type Config struct {
	Disk Disk
	// Self is the address of this server.
	Self string
	// Core lists addresses of members of a core, in any order. If there is no core yet, these
	// servers form it: 1, 3 or 5, all with the same list.
	Core  []string
	Peers Peers
	// Late is set if the server does not form a core, and offers itself to an existing one.
	Late bool
	// Coordination is set if the server, as a member, keeps the coordination store too.
	Coordination bool
	// Heard, if not nil, is called with the hellos of other servers. It must not block.
	Heard func(*clusterpb.BootstrapHello)
	// Say, if not nil, adds the fields of this server's version to its hello. It must not block.
	Say func(*clusterpb.BootstrapHello)
	// Server is the random name that the data directory has already. 0: a new name is made, and
	// stored on the Disk.
	Server uint64

	// Interval is the time between rounds of hello. Default 200 ms.
	Interval time.Duration
	// Timeout is how long a peer has to answer. Default 2 s.
	Timeout time.Duration
	// Random is the source of the server's and the cluster's ids. Default crypto/rand.
	Random io.Reader
	Logger *slog.Logger
}

// Member is one listed server's part in forming the core. It serves clusterpb.Bootstrap, before the
// core is formed and as long as the server runs, so that members that were absent learn of the
// core.
type Member struct {
	clusterpb.UnimplementedBootstrapServer
	config Config

	mu struct {
		sync.Mutex
		machine *machine
		// failed is the reason why Run must end.
		failed error
		// unreachable maps the address of each peer that did not answer last time to the error.
		unreachable map[string]error
	}
	// changed wakes Run. Capacity 1.
	changed chan struct{}
}

// Open reads the server's state, or makes the server's name and stores the first state.
func Open(config Config) (*Member, error) {
	if config.Heard == nil {
		config.Heard = func(*clusterpb.BootstrapHello) {}
	}
	if config.Say == nil {
		config.Say = func(*clusterpb.BootstrapHello) {}
	}
	if config.Disk == nil || config.Peers == nil {
		return nil, errors.New("form the core: Disk and Peers must be set")
	}
	if config.Interval <= 0 {
		config.Interval = 200 * time.Millisecond
	}
	if config.Timeout <= 0 {
		config.Timeout = 2 * time.Second
	}
	if config.Random == nil {
		config.Random = rand.Reader
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Member{config: config, changed: make(chan struct{}, 1)}
	m.mu.unreachable = map[string]error{}
	state, err := config.Disk.Load()
	if err != nil {
		return nil, fmt.Errorf("form the core: %w", err)
	}
	fresh := state == nil
	if fresh {
		state = &bootstrappb.State{Address: config.Self, Server: config.Server}
		if state.Server == 0 {
			if state.Server, err = m.random(); err != nil {
				return nil, fmt.Errorf("form the core: %w", err)
			}
		}
	} else if config.Server != 0 && config.Server != state.Server {
		return nil, fmt.Errorf("form the core: this data directory has the name %016x, "+
			"and what it knows of the core belongs to %016x: parts of two directories were mixed",
			config.Server, state.Server)
	}
	// The list is checked before the name is stored, so that a mistake in the list leaves nothing
	// behind.
	if m.mu.machine, err = newMachine(config.Self, config.Core, state); err != nil {
		return nil, err
	}
	m.mu.machine.coordination = config.Coordination
	m.mu.machine.late = state.Accepted == nil &&
		(config.Late || !slices.Contains(config.Core, config.Self))
	if fresh {
		if err := config.Disk.Store(state); err != nil {
			return nil, fmt.Errorf("form the core: %w", err)
		}
	}
	return m, nil
}

// random returns a number that is not 0.
func (m *Member) random() (uint64, error) {
	for {
		var b [8]byte
		if _, err := io.ReadFull(m.config.Random, b[:]); err != nil {
			return 0, fmt.Errorf("random source: %w", err)
		}
		if n := binary.BigEndian.Uint64(b[:]); n != 0 {
			return n, nil
		}
	}
}

// Server returns the random name of this server's directory.
func (m *Member) Server() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.machine.disk.Server
}

// WaitingFor describes why the core is not formed yet; empty if it is.
func (m *Member) WaitingFor() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.mu.failed != nil:
		return m.mu.failed.Error()
	case m.mu.machine.membership() != nil:
		return ""
	case m.mu.machine.disk.Removed:
		return "this server was removed from the core"
	case m.mu.machine.exists != nil:
		return m.mu.machine.exists.Error()
	}
	s := m.mu.machine.obstacle()
	forming := s == ""
	if forming {
		s = "the members are about to form the core"
	}
	for _, address := range m.mu.machine.core {
		// A member that was heard before holds up only the later steps.
		err := m.mu.unreachable[address]
		if err != nil && (forming || m.mu.machine.heard[address] == nil) {
			s += fmt.Sprintf(" (%s: %s)", address, wire.Reason(err))
		}
	}
	return s
}

// Silent lists the members that do not answer.
func (m *Member) Silent() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var silent []string
	for _, address := range m.config.Core {
		if m.mu.unreachable[address] != nil {
			silent = append(silent, address)
		}
	}
	return silent
}

// quietStart is how long the members may take to find one another before the log says so: they are
// started one after the other.
const quietStart = 10 * time.Second

// Run returns when this server knows which member of the core it is: at once if the disk says so.
// ErrNotMember says that a core exists of which this server is not a member, and that it offers
// itself from now on: see Join. Another error says that it can never be part of a core, or that ctx
// has ended.
func (m *Member) Run(ctx context.Context) (*Membership, error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	told, began := "", time.Now()
	for {
		if found, err := m.result(); found != nil || err != nil {
			return found, err
		}
		if s := m.WaitingFor(); s != told && time.Since(began) >= quietStart {
			m.config.Logger.Info("the core is not formed yet", "self", m.config.Self, "reason", s)
			told = s
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the core was not formed: %s: %w", m.WaitingFor(), ctx.Err())
		case <-m.changed:
			continue
		case <-timer.C:
		}
		m.round(ctx)
		timer.Reset(m.config.Interval)
	}
}

func (m *Member) result() (*Membership, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	machine := m.mu.machine
	found := machine.membership()
	switch {
	case found != nil || m.mu.failed != nil:
		return found, m.mu.failed
	case machine.disk.Removed:
		return nil, ErrRemoved
	case machine.exists != nil:
		return nil, machine.exists
	case machine.late:
		return nil, ErrNotMember
	}
	return nil, nil
}

// round sends a hello to all peers, and proposes if it is time to.
func (m *Member) round(ctx context.Context) {
	m.exchange(ctx, m.peers(),
		func(ctx context.Context, address string) (*clusterpb.BootstrapHello, error) {
			m.mu.Lock()
			hello := m.mu.machine.hello()
			m.mu.Unlock()
			return m.config.Peers.Hello(ctx, address, hello)
		})
	f := m.propose()
	if f == nil {
		return
	}
	m.exchange(ctx, m.peers(),
		func(ctx context.Context, address string) (*clusterpb.BootstrapHello, error) {
			return m.config.Peers.Accept(ctx, address, f)
		})
}

func (m *Member) peers() []string {
	var peers []string
	for _, address := range m.config.Core {
		if address != m.config.Self {
			peers = append(peers, address)
		}
	}
	return peers
}

// exchange calls all peers at the same time and processes their answers.
func (m *Member) exchange(
	ctx context.Context, peers []string,
	call func(context.Context, string) (*clusterpb.BootstrapHello, error),
) {
	ctx, cancel := context.WithTimeout(ctx, m.config.Timeout)
	defer cancel()
	var all sync.WaitGroup
	for _, address := range peers {
		all.Go(func() {
			hello, err := call(ctx, address)
			if err == nil && hello.GetAddress() != address {
				err = fmt.Errorf("the server at %s says that its address is %s; start it with "+
					"--advertise %s", address, hello.GetAddress(), address)
			}
			m.mu.Lock()
			if err == nil {
				m.config.Heard(hello)
			}
			if m.mu.unreachable[address] = err; err == nil {
				m.stepLocked(func(machine *machine) (*bootstrappb.State, error) {
					return machine.hear(hello)
				})
			}
			m.mu.Unlock()
			if err != nil && ctx.Err() == nil {
				m.config.Logger.Debug("forming the core: no answer", "peer", address, "error", err)
			}
		})
	}
	all.Wait()
}

func (m *Member) propose() *clusterpb.Founding {
	random, err := m.random()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.mu.failed = fmt.Errorf("form the core: %w", err)
		return nil
	}
	f, next := m.mu.machine.propose(random)
	if f == nil || !m.keepLocked(next) {
		return nil
	}
	if next != nil {
		m.config.Logger.Debug("proposes to form the core",
			"cluster", fmt.Sprintf("%016x", f.Cluster), "members", memberAddresses(f))
	}
	// A core of one is complete now.
	m.stepLocked(func(machine *machine) (*bootstrappb.State, error) { return machine.conclude() })
	return f
}

// stepLocked takes a step of the protocol. An error of a step is permanent.
func (m *Member) stepLocked(step func(*machine) (*bootstrappb.State, error)) {
	if m.mu.failed != nil {
		return
	}
	next, err := step(m.mu.machine)
	if err != nil {
		m.mu.failed = err
		m.wake()
		return
	}
	m.keepLocked(next)
}

// keepLocked stores a state and then uses it.
func (m *Member) keepLocked(next *bootstrappb.State) bool {
	if next == nil {
		return true
	}
	if err := m.config.Disk.Store(next); err != nil {
		// The disk may have the old or the new state. Neither is acted upon, and the server ends.
		m.mu.failed = fmt.Errorf("form the core: %w", err)
		m.wake()
		return false
	}
	formed := next.Founded && !m.mu.machine.disk.Founded
	m.mu.machine.adopt(next)
	if formed {
		m.config.Logger.Info("the core is formed", "cluster", fmt.Sprintf("%016x",
			next.Accepted.Cluster),
			"members", memberAddresses(fromDisk(next.Accepted)))
	}
	m.wake()
	return true
}

func (m *Member) wake() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// Hello implements clusterpb.BootstrapServer.
func (m *Member) Hello(
	_ context.Context, h *clusterpb.BootstrapHello,
) (*clusterpb.BootstrapHello, error) {
	if h.GetServer() != 0 {
		m.config.Heard(h)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stepLocked(func(machine *machine) (*bootstrappb.State, error) { return machine.hear(h) })
	answer := m.mu.machine.hello()
	m.config.Say(answer)
	return answer, nil
}

// Accept implements clusterpb.BootstrapServer.
func (m *Member) Accept(
	_ context.Context, f *clusterpb.Founding,
) (*clusterpb.BootstrapHello, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.failed != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "%v", m.mu.failed)
	}
	next, err := m.mu.machine.accept(f)
	if err != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "%v", err)
	}
	if !m.keepLocked(next) {
		return nil, status.Errorf(codes.Unavailable, "%v", m.mu.failed)
	}
	// The others may all have accepted already.
	m.stepLocked(func(machine *machine) (*bootstrappb.State, error) { return machine.conclude() })
	return m.mu.machine.hello(), nil
}
