package peer

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/metric"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// Class separates kinds of traffic that must not wait for one another: each class has a stream of
// its own.
type Class int

const (
	// ClassConsensus carries appends, votes and all other messages of Raft.
	ClassConsensus Class = iota
	// ClassControl carries pings and heartbeats, which are small and urgent.
	ClassControl
	classes
)

// String returns the name of the class in logs and metrics.
func (c Class) String() string {
	switch c {
	case ClassConsensus:
		return "consensus"
	case ClassControl:
		return "control"
	}
	return "unknown"
}

// Handler receives the messages of peers. Its methods are called from the transport's goroutines,
// never from within a method of the transport.
type Handler interface {
	// HandleMessages takes ownership of a batch, whose byte slices alias one buffer of its own.
	// Batches of one host and class come one at a time and in order, except that around a reconnect
	// a batch of the old stream may come at the same time as one of the new. It may block for a
	// moment, which slows the sender down.
	HandleMessages(from uint64, b *peerpb.MessageBatch)
	// HandleUnreachable reports that messages to the host were, or may have been, lost. It may be
	// called often.
	HandleUnreachable(host uint64)
	// HandleRefused reports that a connection to the host was refused, as a machine does where no
	// process listens. It may be wrong, and may be called often.
	HandleRefused(host uint64)
	// HandleSnapshot reads one snapshot. A nil error means accepted; then it must have read r to
	// io.EOF, because only that proves the snapshot complete. If the stream breaks, r returns
	// another error. r must not be used after return.
	HandleSnapshot(ctx context.Context, from uint64, h *peerpb.SnapshotHeader, r io.Reader) error
}

// Config configures a Transport.
type Config struct {
	// Realm separates hosts that share one server: data nodes and core members.
	Realm string
	// Self is this host's id in the realm.
	Self uint64
	// Cluster returns the cluster id, 0 while it is unknown: then nothing is sent or received.
	Cluster func() uint64
	// Resolve returns the address of a host. It must not block.
	Resolve func(host uint64) (addr string, ok bool)
	// Dialer makes the connections. The transport does not close it.
	Dialer  *client.Dialer
	Handler Handler
	// Logger is nil for none, Registry nil for no metrics.
	Logger   *slog.Logger
	Registry metric.Registry
	// SnapshotBytesPerSecond limits all snapshots sent together; 0 is without limit.
	SnapshotBytesPerSecond int64
	// MaxSnapshots bounds the snapshots sent at a time, and those received at a time (default 4).
	MaxSnapshots int
	// MaxQueuesBytes bounds the bytes that wait to be sent to all hosts together, except in
	// ClassControl (default 256 MiB). A message is always accepted if nothing waits for its host
	// and class.
	MaxQueuesBytes int64
	// MaxQueueBytes bounds the bytes that wait to be sent, per host and class (default 16 MiB, or a
	// quarter of MaxQueuesBytes if that is less, so that a host that reads nothing leaves room for
	// others). A single larger message is accepted.
	MaxQueueBytes int
}

// Transport carries Raft messages and snapshots between this host and the others of its realm. It
// sends over its Dialer, and receives from the connections that Server.ServePeers passes to it.
type Transport struct {
	config  Config
	metrics *metrics
	// ctx ends with Close.
	ctx    context.Context
	cancel context.CancelFunc
	// work counts goroutines and handler calls; Close waits for them.
	work sync.WaitGroup
	// sendSlots and receiveSlots bound the snapshots: each snapshot that is sent or received holds
	// a token.
	sendSlots    chan struct{}
	receiveSlots chan struct{}
	snapshots    *admission.Pacer
	// queued counts the bytes that wait to be sent to all hosts.
	queued atomic.Int64
	// unreachable and refused hold the hosts to report to the handler.
	unreachable, refused *reports

	mu struct {
		sync.RWMutex
		closed bool
		links  map[linkKey]*link
		// incoming counts the open streams of messages from peers.
		incoming int
	}
}

type linkKey struct {
	host  uint64
	class Class
}

// NewTransport makes a transport. It receives nothing until Server.ServePeers.
func NewTransport(c Config) *Transport {
	if c.Cluster == nil || c.Resolve == nil || c.Dialer == nil || c.Handler == nil {
		panic("rpc: PeerConfig needs Cluster, Resolve, Dialer and Handler")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = c.Logger.With("realm", c.Realm, "host", c.Self)
	if c.MaxSnapshots <= 0 {
		c.MaxSnapshots = 4
	}
	if c.MaxQueuesBytes <= 0 {
		c.MaxQueuesBytes = 256 << 20
	}
	if c.MaxQueueBytes <= 0 {
		c.MaxQueueBytes = int(min(16<<20, c.MaxQueuesBytes/4))
	}
	t := &Transport{
		config:       c,
		metrics:      newMetrics(c.Registry, c.Realm),
		sendSlots:    make(chan struct{}, c.MaxSnapshots),
		receiveSlots: make(chan struct{}, c.MaxSnapshots),
		snapshots:    admission.NewPacer(admission.Snapshot, nil),
	}
	t.mu.links = make(map[linkKey]*link)
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.unreachable, t.refused = newReports(), newReports()
	t.work.Go(func() { t.unreachable.run(t.ctx, c.Handler.HandleUnreachable) })
	t.work.Go(func() { t.refused.run(t.ctx, c.Handler.HandleRefused) })
	return t
}

// Send queues messages to a host. It never blocks. The messages are marshalled before it returns,
// and not kept. Messages that do not fit into the host's queue, or come while the host is
// unreachable, are dropped, and HandleUnreachable reports that.
func (t *Transport) Send(host uint64, class Class, msgs []*peerpb.RaftMessage) {
	if len(msgs) == 0 {
		return
	}
	if l := t.link(host, class); l != nil {
		l.send(nil, msgs)
	}
}

// Ping queues a ping, and messages of ClassControl beside it, which are treated like those of Send.
// A ping that was not sent yet is replaced by a newer one.
func (t *Transport) Ping(host uint64, p *peerpb.HostPing, beside []*peerpb.RaftMessage) {
	if l := t.link(host, ClassControl); l != nil {
		l.send(p, beside)
	}
}

// Close stops everything and waits for it; no method of the handler runs after it. The transport,
// the Dialer and the gRPC server may be closed in any order.
func (t *Transport) Close() {
	t.mu.Lock()
	t.mu.closed = true
	t.mu.Unlock()
	t.cancel()
	t.work.Wait()
}

// Realm returns the realm of the transport's hosts.
func (t *Transport) Realm() string { return t.config.Realm }

// enter begins something that Close must wait for: t.work.Done ends it. It returns false if the
// transport is closed.
func (t *Transport) enter() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.mu.closed {
		return false
	}
	t.work.Add(1)
	return true
}

// link returns the link to a host, nil if the transport is closed.
func (t *Transport) link(host uint64, class Class) *link {
	key := linkKey{host, class}
	t.mu.RLock()
	l, closed := t.mu.links[key], t.mu.closed
	t.mu.RUnlock()
	if closed {
		return nil
	}
	if l != nil {
		return l
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if l = t.mu.links[key]; l == nil {
		l = &link{transport: t, host: host, class: class, counters: t.metrics.class(class)}
		t.mu.links[key] = l
	}
	return l
}

// reports collects hosts to report, so that the handler is called from a goroutine of the transport
// and not from within Send.
type reports struct {
	wake chan struct{}
	mu   struct {
		sync.Mutex
		hosts []uint64
	}
}

func newReports() *reports { return &reports{wake: make(chan struct{}, 1)} }

func (u *reports) report(host uint64) {
	u.mu.Lock()
	for _, h := range u.mu.hosts {
		if h == host {
			u.mu.Unlock()
			return
		}
	}
	u.mu.hosts = append(u.mu.hosts, host)
	u.mu.Unlock()
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

func (u *reports) run(ctx context.Context, handle func(host uint64)) {
	for {
		select {
		case <-u.wake:
		case <-ctx.Done():
			return
		}
		u.mu.Lock()
		hosts := u.mu.hosts
		u.mu.hosts = nil
		u.mu.Unlock()
		for _, host := range hosts {
			if ctx.Err() != nil {
				return
			}
			handle(host)
		}
	}
}
