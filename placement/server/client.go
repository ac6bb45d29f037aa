package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// forwardedHeader marks calls of the service Cluster that a server passes on. They are not passed
// on again.
const forwardedHeader = "tidemark-forwarded"

// maxAttempt is the longest that one member is waited for before another is asked.
const maxAttempt = 8 * time.Second

// warnAfter is for how long a call may try before the log says so: while servers start and restart
// it is normal.
const warnAfter = 10 * time.Second

// ClientConfig is what a Client is made of. Core and Conn must be set.
type ClientConfig struct {
	// Core lists addresses of members of the core. The core tells which members there are, and those
	// are asked as well.
	Core []string
	// Learned, if not nil, is called when the core has told of other members than before: see Core.
	// It may be called by several goroutines at once, and must not block for long.
	Learned func()
	// Conn gives connections that its owner keeps; rpc.Dialer.Conn fits.
	Conn func(address string) (*grpc.ClientConn, error)
	// Unreachable, if not nil, says why a member is known not to answer from other connections to it;
	// nil if it is not known to be so. It is for what errors say of members that were not asked.
	Unreachable func(address string) error

	// Attempt is how long a member has to answer; it doubles with every round of the members, up to
	// maxAttempt. Default 1 s.
	Attempt time.Duration
	// Pause before all members are asked again: the first, which doubles, and its cap. Defaults 50
	// ms and 1 s. Half of it is random.
	MinPause, MaxPause time.Duration
	// Random is the source of jitter and tokens. Default math/rand/v2.
	Random func() uint64
	// Cluster is the cluster that the caller belongs to, 0 while it does not know; nil: it never
	// says. Streams of another are refused.
	Cluster func() uint64
	Logger  *slog.Logger
}

// Client reaches the core from anywhere: it finds the leader among the members, follows hints, and
// tries again, with pauses, until the context ends. Everything it does may be done twice without
// harm. It is safe for concurrent use.
type Client struct {
	config ClientConfig
	seeds  []string
	ctx    context.Context
	cancel context.CancelFunc
	words  words

	mu struct {
		sync.Mutex
		// trouble is why calls that are under way get no answer; nil after an answer.
		trouble *CoreUnavailableError
		// leader is the member that answered last, or was hinted at; empty: not known.
		leader string
		// next is where to go on if no leader is known, and watch where the next stream goes.
		next, watch int
		// core are the addresses to ask: the members as of version, then the seeds that are none. It is
		// not changed. members counts the former; 0: the core has told of none yet.
		core    []string
		members int
		version uint64
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
	c := &Client{config: config, seeds: slices.Clone(config.Core)}
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

// Trouble is what keeps the core from answering; nil if it answered last.
func (c *Client) Trouble() *CoreUnavailableError {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.trouble
}

func (c *Client) setTrouble(e *CoreUnavailableError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.trouble = e
}

// Leader is where the core's leader was last; empty if it is not known.
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

// learn notes which member leads. After a failure the leader is not known any more.
func (c *Client) learn(from, leader string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if leader != "" || c.mu.leader == from {
		c.mu.leader = leader
	}
}

// attempts is what one call has met so far.
type attempts struct {
	// last is what to tell: the last error that is not merely a member's word that it does not
	// lead, if there was one.
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

// permanent is an error that is the answer.
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
		return &CoreUnavailableError{}
	}
	pause := c.config.MinPause
	began, warned := time.Now(), false
	for {
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
		if _, refused, _ := hintOf(err); a.last == nil || a.refused || !refused {
			a.last, a.refused = fmt.Errorf("%s: %s", address, rpc.Reason(err)), refused
		}
		a.tried++
		c.setTrouble(c.words.trouble(c.Core(), a.reason(), nil))
		// A hint is followed at once, unless members send one another's hints round and round.
		n := len(c.list())
		if (hinted && a.tried%(n+1) != 0) || (!hinted && a.tried%n != 0) {
			continue
		}
		if !warned && time.Since(began) >= warnAfter {
			warned = true
			c.config.Logger.Warn("the core does not answer",
				"error", c.words.trouble(c.Core(), a.reason(), nil))
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

// attempt asks one member. hinted says that another one is to be asked at once.
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
	if leader, refused, ok := hintOf(err); ok {
		c.words.heard(address, refused && leader == "")
		c.Learn(membersOf(err))
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
		// The network, or a server that is starting.
		c.learn(address, "")
		// One that had no time to answer, because the caller had none left, is not silent.
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
// 0. It returns when the stream ends, which a caller answers by calling again with the last
// revision; then another member is asked.
func (c *Client) Watch(
	ctx context.Context, after uint64, take func(*clusterpb.TableUpdate) error,
) error {
	if len(c.list()) == 0 {
		return &CoreUnavailableError{}
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
func Forwarded(ctx context.Context) context.Context { return forwarded(ctx) }

// forwarded marks a call of the service Cluster as passed on.
func forwarded(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, forwardedHeader, "1")
}

// CreateKeyspace passes a creation on to the leader. Without a token it gets one, so that it can be
// tried again.
func (c *Client) CreateKeyspace(
	ctx context.Context, r *clusterpb.CreateKeyspaceRequest,
) (*clusterpb.CreateKeyspaceResponse, error) {
	if r.Token == 0 {
		r = proto.Clone(r).(*clusterpb.CreateKeyspaceRequest)
		r.Token = c.config.Random() | 1
	}
	return unary(forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.CreateKeyspace)
}

// DropKeyspace passes a drop on to the leader. Without a token it gets one, so that it can be tried
// again.
func (c *Client) DropKeyspace(
	ctx context.Context, r *clusterpb.DropKeyspaceRequest,
) (*clusterpb.DropKeyspaceResponse, error) {
	if r.Token == 0 {
		r = &clusterpb.DropKeyspaceRequest{Name: r.Name, Token: c.config.Random() | 1}
	}
	return unary(forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.DropKeyspace)
}

// AlterKeyspace passes a change on to the leader.
func (c *Client) AlterKeyspace(
	ctx context.Context, r *clusterpb.AlterKeyspaceRequest,
) (*clusterpb.AlterKeyspaceResponse, error) {
	return unary(forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.AlterKeyspace)
}

// ConfirmRecovery passes it on to the leader.
func (c *Client) ConfirmRecovery(
	ctx context.Context, r *clusterpb.ConfirmRecoveryRequest,
) (*clusterpb.ConfirmRecoveryResponse, error) {
	return unary(forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.ConfirmRecovery)
}

// MoveReplica passes a move on to the leader.
func (c *Client) MoveReplica(
	ctx context.Context, r *clusterpb.MoveReplicaRequest,
) (*clusterpb.MoveReplicaResponse, error) {
	return unary(forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.MoveReplica)
}

// CancelOperator passes it on to the leader.
func (c *Client) CancelOperator(
	ctx context.Context, r *clusterpb.CancelOperatorRequest,
) (*clusterpb.CancelOperatorResponse, error) {
	return unary(forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.CancelOperator)
}

// ListOperators asks the leader.
func (c *Client) ListOperators(
	ctx context.Context, r *clusterpb.ListOperatorsRequest,
) (*clusterpb.ListOperatorsResponse, error) {
	return unary(forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.ListOperators)
}

// TransferLeader passes it on to the leader.
func (c *Client) TransferLeader(
	ctx context.Context, r *clusterpb.TransferLeaderRequest,
) (*clusterpb.TransferLeaderResponse, error) {
	return unary(forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.TransferLeader)
}

// SplitPartition passes it on to the leader.
func (c *Client) SplitPartition(
	ctx context.Context, r *clusterpb.SplitPartitionRequest,
) (*clusterpb.SplitPartitionResponse, error) {
	return unary(forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.SplitPartition)
}

// MergePartition passes it on to the leader.
func (c *Client) MergePartition(
	ctx context.Context, r *clusterpb.MergePartitionRequest,
) (*clusterpb.MergePartitionResponse, error) {
	return unary(forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.MergePartition)
}

// SetNodeStatus passes it on to the leader.
func (c *Client) SetNodeStatus(
	ctx context.Context, r *clusterpb.SetNodeStatusRequest,
) (*clusterpb.SetNodeStatusResponse, error) {
	return unary(forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.SetNodeStatus)
}

// Why asks the leader.
func (c *Client) Why(
	ctx context.Context, r *clusterpb.WhyRequest,
) (*clusterpb.WhyResponse, error) {
	return unary(forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.Why)
}

// ListEvents asks the leader.
func (c *Client) ListEvents(
	ctx context.Context, r *clusterpb.ListEventsRequest,
) (*clusterpb.ListEventsResponse, error) {
	return unary(forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.ListEvents)
}

// SetPlacement passes it on to the leader.
func (c *Client) SetPlacement(
	ctx context.Context, r *clusterpb.SetPlacementRequest,
) (*clusterpb.SetPlacementResponse, error) {
	return unary(forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.SetPlacement)
}

// ListNodes asks the leader.
func (c *Client) ListNodes(
	ctx context.Context, r *clusterpb.ListNodesRequest,
) (*clusterpb.ListNodesResponse, error) {
	return unary(forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.ListNodes)
}

// ListKeyspaces asks the leader.
func (c *Client) ListKeyspaces(
	ctx context.Context, r *clusterpb.ListKeyspacesRequest,
) (*clusterpb.ListKeyspacesResponse, error) {
	return unary(forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.ListKeyspaces)
}

// ListPartitions asks the leader. Once it has begun to answer, a failure is final.
func (c *Client) ListPartitions(
	ctx context.Context, r *clusterpb.ListPartitionsRequest,
	take func(*clusterpb.PartitionInfo) error,
) error {
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
