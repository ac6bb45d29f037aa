package route

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route/calltrace"
	"github.com/tidemarkdb/tidemark/range/route/clock"
	"github.com/tidemarkdb/tidemark/range/route/follow"
	"github.com/tidemarkdb/tidemark/range/route/identity"
	"github.com/tidemarkdb/tidemark/range/route/lifetime"
	"github.com/tidemarkdb/tidemark/range/route/nodes"
	"github.com/tidemarkdb/tidemark/range/route/table"
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
	// Tracer makes the spans of calls and requests; nil makes none.
	Tracer *calltrace.Tracer
}

// Sender routes requests. Its methods may be called from any goroutine.
type Sender struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics

	// Clock is what is known of the cluster's time.
	Clock clock.Clock

	known    *table.Known
	nodes    *nodes.Nodes
	sequence atomic.Uint64
	// beginning is where the replicas that share the reads of partitions go around from.
	beginning uint64

	following *follow.Follower
	servers   clusterServers     // following, but in tests
	identity  *identity.Identity // of the client's user
	life      *lifetime.Lifetime
}

// What a sender knows of the cluster, as its callers see it.
type (
	// Table is one immutable picture of the cluster: keyspaces, their partitions, nodes.
	Table = table.Table
	// Keyspace is a keyspace with its partitions in key order. Immutable.
	Keyspace = table.Keyspace
	// Partition is a descriptor with what the sender made of it.
	Partition = table.Partition
	// Leader is a leader hint.
	Leader = table.Leader
	// UnreachableError lists the servers that were tried, and why each failed.
	UnreachableError = follow.UnreachableError
)

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
	s.beginning = cfg.Random() % 1024
	source := cfg.Token
	if cfg.User != nil {
		source = func(ctx context.Context) (string, error) {
			return cfg.User.Authenticate(ctx, (*coreMembers)(s))
		}
	}
	s.identity = identity.New(identity.Config{Source: source, Life: s.life, Logger: s.log,
		Show: func(token string) { s.nodes.Show(token) }})
	s.nodes = nodes.New(nodes.Config{Owner: (*owner)(s), Lanes: cfg.ConnectionsPerNode,
		Dialer: client.DialerConfig{Dial: cfg.Dial, TLS: cfg.TLS, TLSNow: cfg.TLSNow,
			Secret: cfg.Secret, Logger: cfg.Logger},
		Random: cfg.Random, Logger: cfg.Logger, Region: cfg.Region, Zone: cfg.Zone,
		Server: cfg.Server, Clock: &s.Clock, Identity: s.identity, Life: s.life,
		Suspected: s.metrics.suspected, Held: s.metrics.held, Tracer: cfg.Tracer})
	s.known = table.NewKnown(s.nodes, s.log)
	s.following = follow.New(follow.Config{Endpoints: cfg.Endpoints, Known: s.known,
		Dialer: s.nodes.Dialer(), Identity: s.identity, Clock: &s.Clock, Random: cfg.Random,
		Logger: s.log, Life: s.life, Streams: s.metrics.tables})
	s.servers = s.following
	s.life.Go(s.following.Run)
	if s.identity.Named() {
		s.life.Go(s.identity.Run)
	}
	s.nodes.Watch()
	return s, nil
}

// Close ends everything that is in flight and waits for the Sender's goroutines. Calls that wait
// get ErrClosed, or an unknown outcome. It may be called more than once.
func (s *Sender) Close() {
	first := s.life.End()
	if first {
		s.nodes.Close()
	}
	s.life.Wait()
	if first {
		s.metrics.unregister()
	}
}

// random is uniform in [0, 1).
func (s *Sender) random() float64 { return float64(s.cfg.Random()>>11) / (1 << 53) }

// owner is a Sender as its nodes see it.
type owner Sender

// Cluster implements nodes.Owner.
func (o *owner) Cluster() uint64 { return o.known.Table().Cluster }

// Knows implements nodes.Owner.
func (o *owner) Knows(id keys.NodeID) bool { return o.known.Table().Nodes()[id] != nil }

// NextSequence implements nodes.Owner.
func (o *owner) NextSequence() uint64 { return o.sequence.Add(1) }

// Unreachable implements nodes.Owner: the stream of the table is not read from there any more.
func (o *owner) Unreachable(address string) { o.following.Leave(address) }

// Done is closed when the Sender is.
func (s *Sender) Done() <-chan struct{} { return s.life.Done() }

// Table returns the current table; it is empty until the first one has come (see AwaitTable).
func (s *Sender) Table() *Table { return s.known.Table() }

// AwaitTable waits for the first table. While no server can be reached at all it gives up after
// each has been tried, with an *UnreachableError that lists them. When ctx ends, the error is an
// *Error with what the servers said, and code NO_QUORUM if they wait for a core that has none.
func (s *Sender) AwaitTable(ctx context.Context) (*Table, error) {
	t, err := s.following.Await(ctx)
	var none *follow.NoTableError
	if errors.As(err, &none) {
		return nil, &Error{Cause: none.Cause, Code: none.Code, Message: none.Message}
	}
	return t, err
}

// ReloadTable asks for a fresh table, unless one is on its way, or has come a moment ago. It does
// not wait.
func (s *Sender) ReloadTable() { s.following.Reload() }

// Subscribe has the table follow the partitions of a keyspace, if it does not yet. It does not
// wait: the keyspace is Complete in a later table.
func (s *Sender) Subscribe(k *Keyspace) { s.following.Subscribe(k) }

// Waited counts a read that waits until all clocks have passed its moment.
func (s *Sender) Waited() { s.metrics.waits.Inc() }

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
	var ask []*nodes.Node
	for id, info := range s.known.Table().Nodes() {
		if n := s.nodes.Get(id, info); len(ask) < follow.Candidates && !n.Suspected() {
			ask = append(ask, n)
		}
	}
	answers := make(chan *kvpb.Timestamp, len(ask))
	for _, n := range ask {
		go func() { // ends with ctx at the latest, and is waited for below
			at, err := n.Lanes[0].Now(ctx)
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
