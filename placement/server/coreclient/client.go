package coreclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/hint"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// forwardedHeader marks calls of the service Cluster that a server has forwarded. They are not
// forwarded again.
const forwardedHeader = "tidemark-forwarded"

// maxAttempt is the longest time to wait for one member before another one is asked. Patient gives a
// call more time.
const maxAttempt = 8 * time.Second

type patience struct{}

// Patient returns the context of a call over which each member may take that long.
func Patient(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, patience{}, d)
}

// warnAfter is the time after which a call without success is logged. Shorter times are normal
// while servers start and restart.
const warnAfter = 10 * time.Second

// Config has the dependencies and settings of a Client. Core and Conn must be set.
type Config struct {
	// Core lists addresses of members of the core. The core reports its members, and those are asked
	// as well.
	Core []string
	// Learned, if not nil, is called when the core has reported other members than before: see
	// Client.Core. It may be called by several goroutines at once, and must not block for long.
	Learned func()
	// Conn returns a connection, which remains owned by Conn. client.Dialer.Conn can be used.
	Conn func(address string) (*grpc.ClientConn, error)
	// Unreachable, if not nil, returns the reason why a member does not answer, as known from other
	// connections to it. It returns nil if no reason is known. Errors use it for members that were not
	// asked.
	Unreachable func(address string) error

	// Attempt is the time that a member has to answer. It doubles with every round over the members,
	// up to maxAttempt. The default is 1 s.
	Attempt time.Duration
	// MinPause and MaxPause are the shortest and longest pause before all members are asked again. The
	// pause doubles each time, and half of it is random. The defaults are 50 ms and 1 s.
	MinPause, MaxPause time.Duration
	// Random is the source of jitter and tokens. Default math/rand/v2.
	Random func() uint64
	// Cluster returns the id of the caller's cluster, or 0 while it is not known. If Cluster is nil,
	// the id is never known. Streams of another cluster are refused.
	Cluster func() uint64
	Logger  *slog.Logger
}

// Client reaches the core from anywhere. It finds the leader among the members, follows hints, and
// retries with pauses until the context ends. All its calls may be repeated without harm. It is
// safe for concurrent use.
type Client struct {
	// ClusterClient forwards the unary calls of the service Cluster to the leader.
	clusterpb.ClusterClient
	config Config
	seeds  []string
	ctx    context.Context
	cancel context.CancelFunc
	words  words

	mu struct {
		sync.Mutex
		// trouble is the reason why current calls get no answer. It is nil after an answer.
		trouble *UnavailableError
		// leader is the member that answered last, or that a hint named. It is empty if no leader is
		// known.
		leader string
		// next is the member to try if no leader is known. watch is the member for the next stream.
		next, watch int
		// core has the addresses to ask: first the members of the core as of version, then the seeds that
		// are not members. The slice is immutable. members is the number of members in it. It is 0 until
		// the core has reported its members.
		core    []string
		members int
		version uint64
	}
}

// New makes a Client.
func New(config Config) *Client {
	if config.Attempt <= 0 {
		config.Attempt = time.Second
	}
	if config.MinPause <= 0 {
		config.MinPause = 50 * time.Millisecond
	}
	if config.MaxPause <= 0 {
		config.MaxPause = time.Second
	}
	if config.Random == nil {
		config.Random = rand.Uint64
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Cluster == nil {
		config.Cluster = func() uint64 { return 0 }
	}
	c := &Client{config: config, seeds: slices.Clone(config.Core)}
	c.ClusterClient = withTokens{clusterpb.NewClusterClient(forwarding{c}), config.Random}
	c.mu.core = c.seeds
	c.words.unreachable = config.Unreachable
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.mu.next = int(config.Random() % uint64(max(1, len(c.seeds))))
	c.mu.watch = c.mu.next
	return c
}

// Close ends all current and future calls.
func (c *Client) Close() { c.cancel() }

// WaitingFor says in words why the core does not answer. It is empty if the last call was answered.
func (c *Client) WaitingFor() string {
	if e := c.Trouble(); e != nil {
		return e.Error()
	}
	return ""
}

// Trouble returns the reason why the core does not answer. It is nil if the last call was answered.
func (c *Client) Trouble() *UnavailableError {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.trouble
}

func (c *Client) setTrouble(e *UnavailableError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.trouble = e
}

// Leader returns the last known address of the core's leader. It is empty if the leader is not
// known.
func (c *Client) Leader() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.leader
}

// target returns the member to ask next.
func (c *Client) target() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.leader != "" {
		return c.mu.leader
	}
	address := c.mu.core[c.mu.next%len(c.mu.core)]
	c.mu.next++
	return address
}

// learn records which member leads. leader is empty after a failure.
func (c *Client) learn(from, leader string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if leader != "" || c.mu.leader == from {
		c.mu.leader = leader
	}
}

// attempts is the state of one call.
type attempts struct {
	// last is the error to report: the last error that is more than a member's refusal because it does
	// not lead, if there was one.
	last    error
	refused bool
	tried   int
}

// reason is the last error that is more than such a refusal.
func (a *attempts) reason() error {
	if a.refused {
		return nil
	}
	return a.last
}

// permanent is an error that ends the call.
type permanent struct{ error }

// call runs f on the leader. f may run several times, on several members.
func (c *Client) call(ctx context.Context, f func(context.Context, *grpc.ClientConn) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	if c.ctx.Err() != nil {
		cancel() // AfterFunc does not run at once
	}
	var a attempts
	if len(c.list()) == 0 {
		return &UnavailableError{}
	}
	began, warned := time.Now(), false
	for waits := 0; ; {
		if ctx.Err() != nil {
			return c.words.trouble(c.Core(), a.reason(), ctx.Err())
		}
		address := c.target()
		hinted, err := c.attempt(ctx, address, &a, f)
		var answer permanent
		if err == nil || errors.As(err, &answer) {
			c.setTrouble(nil)
			return answer.error
		}
		if _, refused, _ := hint.Of(err); a.last == nil || a.refused || !refused {
			a.last, a.refused = fmt.Errorf("%s: %s", address, wire.Reason(err)), refused
		}
		a.tried++
		c.setTrouble(c.words.trouble(c.Core(), a.reason(), nil))
		// A hint is followed at once, unless the hints of members form a cycle.
		n := len(c.list())
		if (hinted && a.tried%(n+1) != 0) || (!hinted && a.tried%n != 0) {
			continue
		}
		if !warned && time.Since(began) >= warnAfter {
			warned = true
			c.config.Logger.Warn("the core does not answer",
				"error", c.words.trouble(c.Core(), a.reason(), nil))
		}
		_ = backoff.Sleep(ctx, backoff.Step(waits, c.config.MinPause, c.config.MaxPause, 0.5,
			float64(c.config.Random()>>11)/(1<<53)))
		waits++
	}
}

// attempt asks one member. hinted is set if another member should be asked at once.
func (c *Client) attempt(
	ctx context.Context, address string, a *attempts,
	f func(context.Context, *grpc.ClientConn) error,
) (hinted bool, err error) {
	conn, err := c.config.Conn(address)
	if err != nil {
		c.learn(address, "")
		c.words.silent(address, err)
		return false, err
	}
	began := time.Now()
	limit := min(maxAttempt, c.config.Attempt<<min(a.tried/len(c.list()), 10))
	if d, ok := ctx.Value(patience{}).(time.Duration); ok {
		limit = max(limit, d)
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = f(limited, conn)
	if err == nil {
		c.learn(address, address)
		c.words.heard(address, false)
		return false, nil
	}
	if errors.As(err, new(permanent)) {
		c.words.heard(address, false)
		return false, err
	}
	if leader, refused, ok := hint.Of(err); ok {
		c.words.heard(address, refused && leader == "")
		c.Learn(hint.Members(err))
		if refused {
			c.learn(address, leader)
			return leader != "" && leader != address, err
		}
		c.learn(address, "")
		return false, err
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted,
		codes.Unimplemented:
		// The network failed, or the server is starting.
		c.learn(address, "")
		// If the member had too little time because the caller's deadline was near, it does not count as
		// silent.
		if ctx.Err() == nil || time.Since(began) >= c.config.Attempt/2 {
			c.words.silent(address, err)
		}
		return false, err
	}
	c.words.heard(address, false)
	c.learn(address, address)
	return false, permanent{err}
}

// unary calls a method of a service on the leader.
func unary[Service, Request, Response any](
	ctx context.Context, c *Client, request Request,
	service func(grpc.ClientConnInterface) Service,
	method func(Service, context.Context, Request, ...grpc.CallOption) (Response, error),
) (response Response, err error) {
	err = c.call(ctx, func(ctx context.Context, conn *grpc.ClientConn) (err error) {
		response, err = method(service(conn), ctx, request)
		return err
	})
	return response, err
}

// Register registers a data node.
func (c *Client) Register(
	ctx context.Context, r *clusterpb.RegisterNodeRequest,
) (*clusterpb.RegisterNodeResponse, error) {
	return unary(ctx, c, r, clusterpb.NewCoreClient,
		clusterpb.CoreClient.RegisterNode)
}

// Heartbeat renews a node's lease and delivers the node's reports.
func (c *Client) Heartbeat(
	ctx context.Context, r *clusterpb.HeartbeatRequest,
) (*clusterpb.HeartbeatResponse, error) {
	response, err := unary(ctx, c, r, clusterpb.NewCoreClient,
		clusterpb.CoreClient.Heartbeat)
	c.Learn(response.GetCore())
	return response, err
}

// Watch reads one stream of the table from one member, from a revision on. Revision 0 means
// everything. When the stream ends, Watch returns, and the caller calls it again with the last
// revision. Each call asks another member.
func (c *Client) Watch(
	ctx context.Context, after uint64, take func(*clusterpb.TableUpdate) error,
) error {
	if len(c.list()) == 0 {
		return &UnavailableError{}
	}
	c.mu.Lock()
	address := c.mu.core[c.mu.watch%len(c.mu.core)]
	c.mu.watch++
	c.mu.Unlock()
	conn, err := c.config.Conn(address)
	if err != nil {
		return fmt.Errorf("watch the table at %s: %w", address, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	// The first update comes at once, even if nothing has changed.
	overdue := time.AfterFunc(c.config.Attempt, cancel)
	defer overdue.Stop()
	stream, err := clusterpb.NewCoreClient(conn).WatchMetadata(ctx,
		&clusterpb.WatchMetadataRequest{Cluster: c.config.Cluster(), AfterRevision: after})
	for err == nil {
		var u *clusterpb.TableUpdate
		if u, err = stream.Recv(); err == nil {
			overdue.Stop()
			if err := take(u); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("watch the table at %s: %w", address, err)
}

// Forwarded marks a call that a server forwards, of the service Cluster or of the etcd API.
func Forwarded(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, forwardedHeader, "1")
}

// IsForwarded reports whether another server has forwarded a call, according to the call itself.
func IsForwarded(ctx context.Context) bool {
	return len(metadata.ValueFromIncomingContext(ctx, forwardedHeader)) > 0
}
