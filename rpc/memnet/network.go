package memnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/backoff"
)

// Errors of dialling and of connections, inside a *net.OpError.
var (
	// ErrRefused: no listener is at the address, or a link between the hosts is cut with Break. It
	// is the error of a real network.
	ErrRefused error = syscall.ECONNREFUSED
	// ErrReset: the connection was reset, by a cut, by Drop, or by its other end.
	ErrReset = errors.New("connection reset by peer")
)

// Mode says what a cut does to connections.
type Mode int

const (
	// Stall keeps connections: bytes wait until the link is healed, like lost packets that are sent
	// again.
	Stall Mode = iota + 1
	// Break resets connections, and refuses new ones, as a firewall may: to a client this looks as
	// if the process had ended.
	Break
)

// Network is an in-memory network. Safe for concurrent use.
type Network struct {
	mu sync.Mutex
	// All fields are guarded by mu.
	listeners map[string]*listener
	links     map[linkKey]*link
	isolated  map[string]Mode
	latency   time.Duration
	// pairs are the open connections in the order of their making.
	pairs    []*pair
	lastPort int
	// changed is closed, and made anew, when a link changes, so that waiting dials continue.
	changed chan struct{}
}

type linkKey struct{ from, to string }

// link is the state of one direction between two hosts.
type link struct {
	cut Mode // 0: not cut
	// latency is used if hasLatency.
	latency    time.Duration
	hasLatency bool
}

// New makes a network without latency or cuts.
func New() *Network {
	return &Network{
		listeners: make(map[string]*listener),
		links:     make(map[linkKey]*link),
		isolated:  make(map[string]Mode),
		lastPort:  50000,
		changed:   make(chan struct{}),
	}
}

// host is the part of an address before the port.
func host(addr string) string {
	if i := strings.LastIndexByte(addr, ':'); i >= 0 {
		return addr[:i]
	}
	return addr
}

// Listen listens at addr, "host:port". Port 0 is replaced by a free one.
func (n *Network) Listen(addr string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if strings.HasSuffix(addr, ":0") {
		addr = n.freeAddrLocked(host(addr))
	}
	if _, ok := n.listeners[addr]; ok {
		return nil, &net.OpError{Op: "listen", Net: networkName, Addr: address(addr),
			Err: errors.New("address already in use")}
	}
	l := &listener{network: n, addr: addr, incoming: make(chan *conn, backlog),
		closed: make(chan struct{})}
	n.listeners[addr] = l
	return l, nil
}

func (n *Network) freeAddrLocked(host string) string {
	n.lastPort++
	return host + ":" + strconv.Itoa(n.lastPort)
}

// Dialer gives the dial function of a host, given by its name or any address of it.
func (n *Network) Dialer(from string) func(ctx context.Context, addr string) (net.Conn, error) {
	from = host(from)
	return func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := n.dial(ctx, from, addr)
		if err != nil {
			return nil, &net.OpError{Op: "dial", Net: networkName, Source: address(from),
				Addr: address(addr), Err: err}
		}
		return c, nil
	}
}

func (n *Network) dial(ctx context.Context, from, addr string) (net.Conn, error) {
	to := host(addr)
	// The dial waits for both directions.
	n.mu.Lock()
	delay := n.latencyLocked(from, to) + n.latencyLocked(to, from)
	n.mu.Unlock()
	if err := backoff.Sleep(ctx, delay); err != nil {
		return nil, err
	}
	for {
		n.mu.Lock()
		cut := max(n.cutLocked(from, to), n.cutLocked(to, from))
		changed := n.changed
		if cut == 0 {
			c, err := n.connectLocked(from, addr)
			n.mu.Unlock()
			return c, err
		}
		n.mu.Unlock()
		if cut == Break {
			return nil, ErrRefused
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (n *Network) connectLocked(from, addr string) (net.Conn, error) {
	l := n.listeners[addr]
	if l == nil {
		return nil, ErrRefused
	}
	p := newPair(n, n.freeAddrLocked(from), addr)
	select {
	case l.incoming <- p.ends[1]:
	default:
		return nil, fmt.Errorf("%w: %d connections wait to be accepted", ErrRefused, backlog)
	}
	n.pairs = append(n.pairs, p)
	return p.ends[0], nil
}

// Cut cuts the direction from → to. Hosts are given by name or any address, here and below.
func (n *Network) Cut(from, to string, mode Mode) {
	n.change(func() { n.linkLocked(from, to).cut = mode })
}

// CutBoth cuts both directions between two hosts.
func (n *Network) CutBoth(a, b string, mode Mode) {
	n.change(func() { n.linkLocked(a, b).cut, n.linkLocked(b, a).cut = mode, mode })
}

// Isolate cuts a host off from all others, both ways, including hosts that are added later. Its
// connections to itself stay.
func (n *Network) Isolate(name string, mode Mode) {
	n.change(func() { n.isolated[host(name)] = mode })
}

// Rejoin ends what Isolate did. Cuts of single links remain.
func (n *Network) Rejoin(name string) {
	n.change(func() { delete(n.isolated, host(name)) })
}

// Heal ends the cuts of both directions between two hosts. An isolation remains.
func (n *Network) Heal(a, b string) {
	n.change(func() { n.linkLocked(a, b).cut, n.linkLocked(b, a).cut = 0, 0 })
}

// HealAll ends all cuts and isolations. Latencies remain.
func (n *Network) HealAll() {
	n.change(func() {
		clear(n.isolated)
		for _, l := range n.links {
			l.cut = 0
		}
	})
}

// Drop resets all connections between two hosts. New ones can be made at once.
func (n *Network) Drop(a, b string) {
	a, b = host(a), host(b)
	n.reset(func(p *pair) bool { return p.joins(a, b) })
}

// DropHost resets all connections of a host, and closes its listeners, as a crash of the host does.
// The other hosts notice it even over links that are cut.
func (n *Network) DropHost(name string) {
	name = host(name)
	n.mu.Lock()
	var listeners []*listener
	for addr, l := range n.listeners {
		if host(addr) == name {
			listeners = append(listeners, l)
		}
	}
	n.mu.Unlock()
	for _, l := range listeners {
		_ = l.Close()
	}
	n.reset(func(p *pair) bool { return p.hosts[0] == name || p.hosts[1] == name })
}

// SetLatency sets the latency of the direction from → to, for what is written from now on.
func (n *Network) SetLatency(from, to string, d time.Duration) {
	n.change(func() { l := n.linkLocked(from, to); l.latency, l.hasLatency = d, true })
}

// SetDefaultLatency sets the latency, in one direction, of all links that have none of their own. A
// host's link to itself has none.
func (n *Network) SetDefaultLatency(d time.Duration) {
	n.change(func() { n.latency = d })
}

func (n *Network) linkLocked(from, to string) *link {
	key := linkKey{host(from), host(to)}
	l := n.links[key]
	if l == nil {
		l = &link{}
		n.links[key] = l
	}
	return l
}

// cutLocked returns how a direction is cut; 0 if it is not.
func (n *Network) cutLocked(from, to string) Mode {
	if from == to {
		return 0
	}
	mode := max(n.isolated[from], n.isolated[to])
	if l := n.links[linkKey{from, to}]; l != nil {
		mode = max(mode, l.cut)
	}
	return mode
}

func (n *Network) latencyLocked(from, to string) time.Duration {
	if l := n.links[linkKey{from, to}]; l != nil && l.hasLatency {
		return l.latency
	}
	if from == to {
		return 0
	}
	return n.latency
}

// change changes links and updates the state of the connections.
func (n *Network) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	for _, p := range slices.Clone(n.pairs) {
		var links [2]link
		for i := range links {
			from, to := p.hosts[i], p.hosts[1-i]
			links[i].cut, links[i].latency = n.cutLocked(from, to), n.latencyLocked(from, to)
		}
		p.follow(links)
		if links[0].cut == Break || links[1].cut == Break {
			n.removeLocked(p)
			p.reset()
		}
	}
	close(n.changed)
	n.changed = make(chan struct{})
}

// follow updates a connection from the state of its two links.
func (p *pair) follow(links [2]link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, l := range links {
		p.flows[i].stalled = l.cut == Stall
		p.flows[i].latency = l.latency
	}
	p.cond.Broadcast()
}

// reset resets the connections that match.
func (n *Network) reset(match func(*pair) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range slices.Clone(n.pairs) {
		if match(p) {
			n.removeLocked(p)
			p.reset()
		}
	}
}

func (n *Network) removeLocked(p *pair) {
	if i := slices.Index(n.pairs, p); i >= 0 {
		n.pairs = slices.Delete(n.pairs, i, i+1)
	}
}

// remove forgets a connection whose ends are both closed.
func (n *Network) remove(p *pair) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.removeLocked(p)
}
