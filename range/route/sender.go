package route

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route/clock"
	"github.com/tidemarkdb/tidemark/range/route/identity"
	"github.com/tidemarkdb/tidemark/range/route/lifetime"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/metric"
	"github.com/tidemarkdb/tidemark/rpc/transport"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Config configures a Sender. Only Endpoints is required.
type Config struct {
	// Endpoints are addresses of any servers of the cluster. The nodes in the table are used as
	// well once they are known.
	Endpoints []string
	// Dial connects to an address; nil dials TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// TLS is nil for plain text.
	TLS *tls.Config
	// TLSNow, if set, is asked for what stands in the place of TLS for each connection.
	TLSNow func() *tls.Config
	// ConnectionsPerNode is how many connections carry requests to each node; default 1.
	ConnectionsPerNode int
	// Random gives random numbers, for client ids and jitter; default math/rand/v2.
	Random func() uint64
	// Logger receives what operators may want to know; nil discards it.
	Logger *slog.Logger
	// Region and Zone say where the sender is; empty: that is not known.
	Region, Zone string
	// Token gets the token that identifies the client; "": there is none. It is called every few
	// minutes, and when a server does not know the client by the latest one, by one goroutine at a
	// time. nil: there is none.
	Token func(context.Context) (string, error)
	// User, if set, stands in the place of Token: members of the core exchange its password.
	User *identity.User
	// Server says that the sender is a server's, as its connections show: its requests are not
	// judged.
	Server bool
	// Secret is the cluster's, proved to servers that are called without TLS; empty: none.
	Secret transport.Secret
	// Registry receives the metrics; nil keeps none.
	Registry metric.Registry
}

// sharedLane is what lane i of all nodes has in common.
type sharedLane struct {
	client  uint64
	streams atomic.Uint64
	dialer  *client.Dialer
}

// Sender routes requests. Its methods may be called from any goroutine.
type Sender struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	lanes   []*sharedLane

	// Clock is what is known of the cluster's time.
	Clock clock.Clock

	table    atomic.Pointer[Table]
	nodes    atomic.Pointer[[]*node] // for the watchdog
	sequence atomic.Uint64
	ticks    atomic.Uint32 // of the watchdog
	// beginning is where the replicas that share the reads of partitions go around from.
	beginning uint64

	following tableFollower
	identity  *identity.Identity // of the client's user
	life      *lifetime.Lifetime

	mu struct {
		sync.Mutex
		cluster  uint64
		contents *contents
		nodes    map[keys.NodeID]*node
	}
}

// New makes a Sender and starts to look for the partition table. Close it after use.
func New(cfg Config) (*Sender, error) {
	if len(cfg.Endpoints) == 0 {
		return nil, errors.New("no endpoints are given")
	}
	if cfg.ConnectionsPerNode <= 0 {
		cfg.ConnectionsPerNode = 1
	}
	if cfg.Random == nil {
		cfg.Random = rand.Uint64
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Sender{cfg: cfg, log: cfg.Logger, life: lifetime.New()}
	var err error
	if s.metrics, err = newMetrics(cfg.Registry); err != nil {
		return nil, err
	}
	for range cfg.ConnectionsPerNode {
		lane := &sharedLane{dialer: client.NewDialer(client.DialerConfig{Dial: cfg.Dial, TLS: cfg.TLS,
			TLSNow: cfg.TLSNow, Secret: cfg.Secret, Logger: cfg.Logger})}
		for lane.client == 0 {
			lane.client = cfg.Random()
		}
		s.lanes = append(s.lanes, lane)
	}
	s.beginning = cfg.Random() % 1024
	s.following.init(s)
	s.mu.contents = newContents()
	s.mu.nodes = make(map[keys.NodeID]*node)
	s.nodes.Store(&[]*node{})
	s.table.Store(newTable())
	source := cfg.Token
	if cfg.User != nil {
		source = func(ctx context.Context) (string, error) {
			return cfg.User.Authenticate(ctx, (*coreMembers)(s))
		}
	}
	s.identity = identity.New(identity.Config{Source: source, Show: s.showToken, Life: s.life,
		Logger: s.log})
	s.life.Go(s.following.run)
	if s.identity.Named() {
		s.life.Go(s.identity.Run)
	}
	s.life.Go(s.watchdog)
	return s, nil
}

// Close ends everything that is in flight and waits for the Sender's goroutines. Calls that wait
// get ErrClosed, or an unknown outcome. It may be called more than once.
func (s *Sender) Close() {
	first := s.life.End()
	if first {
		s.mu.Lock()
		all := *s.nodes.Load()
		s.mu.Unlock()
		for _, n := range all {
			n.mu.Lock()
			//lint:ignore SA2001 a lane that is being made is made by now, or sees that this is closed
			n.mu.Unlock()
			n.hangUp()
		}
		for _, l := range s.lanes {
			_ = l.dialer.Close() // nothing is left that could tell us more
		}
	}
	s.life.Wait()
	if first {
		s.metrics.unregister()
	}
}

// random is uniform in [0, 1).
func (s *Sender) random() float64 { return float64(s.cfg.Random()>>11) / (1 << 53) }

func (s *Sender) cluster() uint64 { return s.table.Load().Cluster }

func (s *Sender) publishNodesLocked() {
	all := make([]*node, 0, len(s.mu.nodes))
	for _, n := range s.mu.nodes {
		all = append(all, n)
	}
	s.nodes.Store(&all)
}

// Done is closed when the Sender is.
func (s *Sender) Done() <-chan struct{} { return s.life.Done() }

// Table returns the current table; it is empty until the first one has come (see AwaitTable).
func (s *Sender) Table() *Table { return s.table.Load() }

// probe is a request that asks a replica which one leads. A write of term 0 is refused by every
// replica, by the leader with its term. Should that ever fail to hold, it is a write of no effect.
func probe(p *Partition) *kvpb.Request {
	key := p.Span.Start
	if len(key) == 0 {
		key = []byte{0}
	}
	return neverMet(key)
}

// Greet asks some nodes for their clocks, so that the session begins at the cluster's time. It
// makes do without an answer.
func (s *Sender) Greet(ctx context.Context) {
	s.AskClocks(ctx, greetWait)
}

// AskClocks asks some nodes for their clocks, and returns what the first one says, or the session
// if that is later. ok is false if none answers within the limit.
func (s *Sender) AskClocks(ctx context.Context, limit time.Duration) (now hlc.Timestamp, ok bool) {
	now, ok = s.AskClock(ctx, limit)
	return hlc.Max(now, s.Clock.Session()), ok
}

// AskClock asks some nodes for their clocks, and returns what the first one says. ok is false if
// none answers within the limit.
func (s *Sender) AskClock(ctx context.Context, limit time.Duration) (now hlc.Timestamp, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s.mu.Lock()
	var ask []*node
	for id := range s.mu.contents.nodes {
		if n := s.nodeLocked(id); len(ask) < candidates && !n.suspected.Load() {
			ask = append(ask, n)
		}
	}
	s.mu.Unlock()
	answers := make(chan *kvpb.Timestamp, len(ask))
	for _, n := range ask {
		go func() { // ends with ctx at the latest, and is waited for below
			at, err := n.lanes[0].now(ctx)
			if err != nil {
				at = nil
			}
			answers <- at
		}()
	}
	for range ask {
		if at := <-answers; at != nil && !ok {
			now, ok = wire.FromTimestamp(at), true
			cancel() // one will do
		}
	}
	return now, ok
}

// greetWait is how long Greet waits for a first answer.
const greetWait = 500 * time.Millisecond
