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

// forwardedHeader marks calls of the service Cluster that a server passes on. They are not passed
// on again.
const forwardedHeader = "tidemark-forwarded"

// maxAttempt is the longest that one member is waited for before another is asked.
const maxAttempt = 8 * time.Second

// warnAfter is for how long a call may try before the log says so: while servers start and restart
// it is normal.
const warnAfter = 10 * time.Second

// Config is what a Client is made of. Core and Conn must be set.
type Config struct {
	// Core lists addresses of members of the core. The core tells which members there are, and those
	// are asked as well.
	Core []string
	// Learned, if not nil, is called when the core has told of other members than before: see Core.
	// It may be called by several goroutines at once, and must not block for long.
	Learned func()
	// Conn gives connections that its owner keeps; client.Dialer.Conn fits.
	Conn func(address string) (*grpc.ClientConn, error)
	// Unreachable, if not nil, returns why a member is known, from other connections to it, not to
	// answer; nil if that is not known. Errors use it for members that were not asked.
	Unreachable func(address string) error

	// Attempt is how long a member has to answer; it doubles with every round of the members, up to
	// maxAttempt. Default 1 s.
	Attempt time.Duration
	// MinPause and MaxPause bound the pause before all members are asked again; it doubles each
	// time. Defaults 50 ms and 1 s. Half of it is random.
	MinPause, MaxPause time.Duration
	// Random is the source of jitter and tokens. Default math/rand/v2.
	Random func() uint64
	// Cluster returns the caller's cluster, 0 while it is not known; nil: it is never known.
	// Streams of another cluster are refused.
	Cluster func() uint64
	Logger  *slog.Logger
}

// Client reaches the core from anywhere: it finds the leader among the members, follows hints, and
// tries again, with pauses, until the context ends. All its calls may be repeated without harm. It
// is safe for concurrent use.
type Client struct {
	// ClusterClient passes the calls of the service Cluster that are no streams on to the leader.
	clusterpb.ClusterClient
	config Config
	seeds  []string
	ctx    context.Context
	cancel context.CancelFunc
	words  words

	mu struct {
		sync.Mutex
		// trouble is why calls that are under way get no answer; nil after an answer.
		trouble *UnavailableError
		// leader is the member that answered last, or was hinted at; empty: not known.
		leader string
		// next is the member to try if no leader is known, and watch that for the next stream.
		next, watch int
		// core are the addresses to ask: the members as of version, then the seeds that are no
		// members. The slice is not changed. members counts the former; 0: the core has reported
		// none yet.
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

// Close ends all calls, and those to come.
func (c *Client) Close() { c.cancel() }

// WaitingFor says in words what keeps the core from answering; empty if it answered last.
func (c *Client) WaitingFor() string {
	if e := c.Trouble(); e != nil {
		return e.Error()
	}
	return ""
}

// Trouble returns what keeps the core from answering; nil if it answered last.
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

// Leader returns the last known address of the core's leader; empty if it is not known.
func (c *Client) Leader() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.leader
}

// target is the member to ask next.
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

// learn notes which member leads. After a failure the leader is no longer known.
func (c *Client) learn(from, leader string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if leader != "" || c.mu.leader == from {
		c.mu.leader = leader
	}
}

// attempts is the state of one call.
type attempts struct {
	// last is the error to report: the last one that is not merely a member's answer that it does
	// not lead, if there was one.
	last    error
	refused bool
	tried   int
}

// reason is the last error that says more than that a member does not lead.
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
		cancel() // AfterFunc takes its time
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
		// A hint is followed at once, unless members refer to one another in a circle.
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

// attempt asks one member. hinted is set if another member is to be asked at once.
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
	limited, cancel := context.WithTimeout(ctx,
		min(maxAttempt, c.config.Attempt<<min(a.tried/len(c.list()), 10)))
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
		// A member that had no time to answer, because the caller had none left, is not silent.
		if ctx.Err() == nil || time.Since(began) >= c.config.Attempt/2 {
			c.words.silent(address, err)
		}
		return false, err
	}
	c.words.heard(address, false)
	c.learn(address, address)
	return false, permanent{err}
}

// unary calls a method of a service of the leader.
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

// Heartbeat renews a node's lease and carries its reports.
func (c *Client) Heartbeat(
	ctx context.Context, r *clusterpb.HeartbeatRequest,
) (*clusterpb.HeartbeatResponse, error) {
	response, err := unary(ctx, c, r, clusterpb.NewCoreClient,
		clusterpb.CoreClient.Heartbeat)
	c.Learn(response.GetCore())
	return response, err
}

// Watch reads one stream of the table from one member: from a revision on, or everything if it is
// 0. When it returns because the stream ended, the caller calls it again with the last revision;
// then another member is asked.
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
	// The first answer comes at once, even if nothing has changed.
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

// Forwarded marks a call that a server passes on, of the service Cluster or the etcd API.
func Forwarded(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, forwardedHeader, "1")
}

// IsForwarded reports that another server has passed a call on, according to the call itself.
func IsForwarded(ctx context.Context) bool {
	return len(metadata.ValueFromIncomingContext(ctx, forwardedHeader)) > 0
}
