package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// forwardedHeader marks calls of the service Cluster that a server passes on. They are not passed on again.
const forwardedHeader = "tidemark-forwarded"

// maxAttempt is the longest that one member is waited for before another is asked.
const maxAttempt = 8 * time.Second

// ErrCoreUnavailable matches a CoreUnavailableError.
var ErrCoreUnavailable = errors.New("the core is unavailable")

// CoreUnavailableError says that the time was up before a leader of the core had answered.
type CoreUnavailableError struct {
	// Core lists all members that were asked; Reachable those that answered at all.
	Core, Reachable []string
	// Last is what went wrong last, and why it ended.
	Last, Cause error
}

func (e *CoreUnavailableError) Error() string {
	last := "no answer in time"
	if e.Last != nil {
		last = "the last error was: " + e.Last.Error()
	}
	switch n := len(e.Reachable); {
	case n == 0:
		return fmt.Sprintf("no member of the core is reachable (%s); %s", strings.Join(e.Core, ", "), last)
	case 2*n <= len(e.Core):
		return fmt.Sprintf("the core has no quorum: %d of %d members reachable (%s); %s", n, len(e.Core), strings.Join(e.Reachable, ", "), last)
	default:
		return fmt.Sprintf("the core has no leader that answers, though %d of %d members are reachable (%s); %s",
			n, len(e.Core), strings.Join(e.Reachable, ", "), last)
	}
}

// Is makes errors.Is(err, ErrCoreUnavailable) true.
func (e *CoreUnavailableError) Is(target error) bool { return target == ErrCoreUnavailable }

// Unwrap gives why it ended: the context's error.
func (e *CoreUnavailableError) Unwrap() error { return e.Cause }

// GRPCStatus makes the error one that can be tried again, when it is returned by a service.
func (e *CoreUnavailableError) GRPCStatus() *status.Status {
	return status.New(codes.Unavailable, e.Error())
}

// ClientConfig is what a Client is made of. Core and Conn must be set.
type ClientConfig struct {
	// Core lists the addresses of the core's members.
	Core []string
	// Conn gives connections that somebody else keeps; rpc.Dialer.Conn fits.
	Conn func(address string) (*grpc.ClientConn, error)

	// Attempt is how long a member has to answer; it doubles with every round of the members, up to maxAttempt. Default 1 s.
	Attempt time.Duration
	// Pause before all members are asked again: the first, which doubles, and its cap. Defaults 50 ms and 1 s. Half of it is
	// random.
	MinPause, MaxPause time.Duration
	// Random is the source of jitter and tokens. Default math/rand/v2.
	Random func() uint64
	// Cluster is the cluster that the caller belongs to, 0 while it does not know; nil: it never says. Streams of another are
	// refused.
	Cluster func() uint64
	Logger  *slog.Logger
}

// Client reaches the core from anywhere: it finds the leader among the members, follows hints, and tries again, with pauses,
// until the context ends. Everything it does may be done twice without harm. It is safe for concurrent use.
type Client struct {
	config ClientConfig
	core   []string
	ctx    context.Context
	cancel context.CancelFunc

	mu struct {
		sync.Mutex
		// trouble is why calls that are under way get no answer; nil after an answer.
		trouble error
		// leader is who answered last, or was hinted at; empty: not known.
		leader string
		// next is where to go on if no leader is known, and watch where the next stream goes.
		next, watch int
	}
}

// NewClient makes a Client.
func NewClient(config ClientConfig) *Client {
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
	c := &Client{config: config, core: slices.Clone(config.Core)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.mu.next = int(config.Random() % uint64(max(1, len(c.core))))
	c.mu.watch = c.mu.next
	return c
}

// Close ends all calls, and those to come.
func (c *Client) Close() { c.cancel() }

// WaitingFor says in words what keeps the core from answering; empty if it answered last.
func (c *Client) WaitingFor() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.trouble == nil {
		return ""
	}
	return fmt.Sprintf("the core at %s does not answer: %v", strings.Join(c.core, ", "), c.mu.trouble)
}

func (c *Client) setTrouble(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.trouble = err
}

// Leader is where the core's leader was last; empty if it is not known.
func (c *Client) Leader() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.leader
}

// Core lists the members as they were given.
func (c *Client) Core() []string { return slices.Clone(c.core) }

// target is whom to ask next.
func (c *Client) target() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.leader != "" {
		return c.mu.leader
	}
	address := c.core[c.mu.next%len(c.core)]
	c.mu.next++
	return address
}

// learn notes who leads. After a failure the leader is not known any more.
func (c *Client) learn(from, leader string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if leader != "" || c.mu.leader == from {
		c.mu.leader = leader
	}
}

// attempts is what one call has met so far.
type attempts struct {
	reachable map[string]bool
	// last is what to tell: the last error that is not merely a member's word that it does not lead, if there was one.
	last    error
	refused bool
	tried   int
}

// permanent is an error that is the answer.
type permanent struct{ error }

// call runs f on the leader. f may run several times, on several members.
func (c *Client) call(ctx context.Context, f func(context.Context, *grpc.ClientConn) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	a := attempts{reachable: map[string]bool{}}
	if len(c.core) == 0 {
		return &CoreUnavailableError{Last: errors.New("the list of its members is empty")}
	}
	pause := c.config.MinPause
	warned := false
	for {
		if ctx.Err() != nil {
			return c.gaveUp(ctx, &a)
		}
		address := c.target()
		hinted, err := c.attempt(ctx, address, &a, f)
		var answer permanent
		if err == nil || errors.As(err, &answer) {
			c.setTrouble(nil)
			return answer.error
		}
		if _, refused, _ := hintOf(err); a.last == nil || a.refused || !refused {
			a.last, a.refused = fmt.Errorf("%s: %w", address, err), refused
		}
		a.tried++
		c.setTrouble(a.last)
		// A hint is followed at once, unless members send one another's hints round and round.
		if (hinted && a.tried%(len(c.core)+1) != 0) || (!hinted && a.tried%len(c.core) != 0) {
			continue
		}
		if a.tried > 10*len(c.core) && !warned {
			warned = true
			c.config.Logger.Warn("the core does not answer", "core", c.core, "error", a.last)
		}
		timer := time.NewTimer(pause/2 + time.Duration(c.config.Random()%uint64(pause/2+1)))
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
		pause = min(2*pause, c.config.MaxPause)
	}
}

// attempt asks one member. hinted says that somebody else is to be asked at once.
func (c *Client) attempt(ctx context.Context, address string, a *attempts, f func(context.Context, *grpc.ClientConn) error) (hinted bool, err error) {
	conn, err := c.config.Conn(address)
	if err != nil {
		c.learn(address, "")
		return false, err
	}
	limited, cancel := context.WithTimeout(ctx, min(maxAttempt, c.config.Attempt<<min(a.tried/len(c.core), 10)))
	defer cancel()
	err = f(limited, conn)
	if err == nil {
		c.learn(address, address)
		return false, nil
	}
	if errors.As(err, new(permanent)) {
		return false, err
	}
	if leader, refused, ok := hintOf(err); ok {
		a.reachable[address] = true
		if refused {
			c.learn(address, leader)
			return leader != "" && leader != address, err
		}
		c.learn(address, "")
		return false, err
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.Unimplemented:
		// The network, or a server that is starting.
		c.learn(address, "")
		return false, err
	}
	a.reachable[address] = true
	c.learn(address, address)
	return false, permanent{err}
}

func (c *Client) gaveUp(ctx context.Context, a *attempts) error {
	e := &CoreUnavailableError{Core: c.core, Last: a.last, Cause: ctx.Err()}
	for _, address := range c.core {
		if a.reachable[address] {
			e.Reachable = append(e.Reachable, address)
		}
	}
	return e
}

// unary calls a method of the leader.
func unary[Request, Response any](ctx context.Context, c *Client, request Request,
	method func(*grpc.ClientConn) func(context.Context, Request, ...grpc.CallOption) (Response, error)) (response Response, err error) {
	err = c.call(ctx, func(ctx context.Context, conn *grpc.ClientConn) (err error) {
		response, err = method(conn)(ctx, request)
		return err
	})
	return response, err
}

// Register registers a data node.
func (c *Client) Register(ctx context.Context, r *clusterpb.RegisterNodeRequest) (*clusterpb.RegisterNodeResponse, error) {
	return unary(ctx, c, r, func(conn *grpc.ClientConn) func(context.Context, *clusterpb.RegisterNodeRequest, ...grpc.CallOption) (*clusterpb.RegisterNodeResponse, error) {
		return clusterpb.NewCoreClient(conn).RegisterNode
	})
}

// Heartbeat renews a node's lease and carries its reports.
func (c *Client) Heartbeat(ctx context.Context, r *clusterpb.HeartbeatRequest) (*clusterpb.HeartbeatResponse, error) {
	return unary(ctx, c, r, func(conn *grpc.ClientConn) func(context.Context, *clusterpb.HeartbeatRequest, ...grpc.CallOption) (*clusterpb.HeartbeatResponse, error) {
		return clusterpb.NewCoreClient(conn).Heartbeat
	})
}

// Watch reads one stream of the table from one member: from a revision on, or everything if it is 0. It returns when the stream
// ends, which a caller answers by calling again with the last revision; then another member is asked.
func (c *Client) Watch(ctx context.Context, after uint64, take func(*clusterpb.TableUpdate) error) error {
	if len(c.core) == 0 {
		return &CoreUnavailableError{Last: errors.New("the list of its members is empty")}
	}
	c.mu.Lock()
	address := c.core[c.mu.watch%len(c.core)]
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
	stream, err := clusterpb.NewCoreClient(conn).WatchMetadata(ctx, &clusterpb.WatchMetadataRequest{Cluster: c.config.Cluster(), AfterRevision: after})
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

// forwarded marks a call of the service Cluster as passed on.
func forwarded(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, forwardedHeader, "1")
}

// CreateKeyspace passes a creation on to the leader. Without a token it gets one, so that it can be tried again.
func (c *Client) CreateKeyspace(ctx context.Context, r *clusterpb.CreateKeyspaceRequest) (*clusterpb.CreateKeyspaceResponse, error) {
	if r.Token == 0 {
		r = &clusterpb.CreateKeyspaceRequest{
			Name: r.Name, Partitioning: r.Partitioning, HashPartitions: r.HashPartitions, SplitAt: r.SplitAt,
			ReplicationFactor: r.ReplicationFactor, GcWindowSeconds: r.GcWindowSeconds, Token: c.config.Random() | 1,
		}
	}
	return unary(forwarded(ctx), c, r, func(conn *grpc.ClientConn) func(context.Context, *clusterpb.CreateKeyspaceRequest, ...grpc.CallOption) (*clusterpb.CreateKeyspaceResponse, error) {
		return clusterpb.NewClusterClient(conn).CreateKeyspace
	})
}

// DropKeyspace passes a drop on to the leader. Without a token it gets one, so that it can be tried again.
func (c *Client) DropKeyspace(ctx context.Context, r *clusterpb.DropKeyspaceRequest) (*clusterpb.DropKeyspaceResponse, error) {
	if r.Token == 0 {
		r = &clusterpb.DropKeyspaceRequest{Name: r.Name, Token: c.config.Random() | 1}
	}
	return unary(forwarded(ctx), c, r, func(conn *grpc.ClientConn) func(context.Context, *clusterpb.DropKeyspaceRequest, ...grpc.CallOption) (*clusterpb.DropKeyspaceResponse, error) {
		return clusterpb.NewClusterClient(conn).DropKeyspace
	})
}

// ListNodes asks the leader.
func (c *Client) ListNodes(ctx context.Context, r *clusterpb.ListNodesRequest) (*clusterpb.ListNodesResponse, error) {
	return unary(forwarded(ctx), c, r, func(conn *grpc.ClientConn) func(context.Context, *clusterpb.ListNodesRequest, ...grpc.CallOption) (*clusterpb.ListNodesResponse, error) {
		return clusterpb.NewClusterClient(conn).ListNodes
	})
}

// ListKeyspaces asks the leader.
func (c *Client) ListKeyspaces(ctx context.Context, r *clusterpb.ListKeyspacesRequest) (*clusterpb.ListKeyspacesResponse, error) {
	return unary(forwarded(ctx), c, r, func(conn *grpc.ClientConn) func(context.Context, *clusterpb.ListKeyspacesRequest, ...grpc.CallOption) (*clusterpb.ListKeyspacesResponse, error) {
		return clusterpb.NewClusterClient(conn).ListKeyspaces
	})
}

// ListPartitions asks the leader. Once it has begun to answer, a failure is final.
func (c *Client) ListPartitions(ctx context.Context, r *clusterpb.ListPartitionsRequest, take func(*clusterpb.PartitionInfo) error) error {
	whole, cancel := context.WithCancel(forwarded(ctx))
	defer cancel()
	return c.call(whole, func(attempt context.Context, conn *grpc.ClientConn) error {
		// The time of an attempt is for the first answer only.
		ctx, cancel := context.WithCancel(whole)
		defer cancel()
		overdue := context.AfterFunc(attempt, cancel)
		defer overdue()
		stream, err := clusterpb.NewClusterClient(conn).ListPartitions(ctx, r)
		if err != nil {
			return err
		}
		for began := false; ; began = true {
			info, err := stream.Recv()
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil && began:
				return permanent{err}
			case err != nil:
				return err
			}
			overdue()
			if err := take(info); err != nil {
				return permanent{err}
			}
		}
	})
}
