package conn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/range/route/calltrace"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/outcome"
	"github.com/tidemarkdb/tidemark/txn/committer"
)

// Config configures a Conn.
type Config struct {
	Route route.Config
	// RequestTimeout bounds a call whose context has no deadline; 0: no bound.
	RequestTimeout time.Duration
	// MaxClockOffset is the least difference between two nodes' clocks that is assumed, even if the
	// servers report less. DefaultClockOffset is assumed until a server reports.
	MaxClockOffset, DefaultClockOffset time.Duration
	// Wrap turns an error of the Conn into the error of package kv for a call. nil stays nil, and
	// an error of package kv is unchanged.
	Wrap func(op, keyspace string, err error) error
}

// Conn is the connection of a client to its cluster. Its methods may be called from any goroutine.
type Conn struct {
	Sender    *route.Sender
	Committer *committer.Committer
	Logger    *slog.Logger
	Random    func() uint64
	cfg       Config
}

// Of returns the Conn of a *kv.Client. Package kv sets it.
var Of func(client any) *Conn

// New makes a Conn, which looks for the partition table from then on. The caller closes it after
// use.
func New(cfg Config) (*Conn, error) {
	c := &Conn{cfg: cfg, Logger: cfg.Route.Logger, Random: cfg.Route.Random}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Random == nil {
		c.Random = rand.Uint64
	}
	var err error
	if c.Sender, err = route.New(cfg.Route); err != nil {
		return nil, err
	}
	c.Committer, err = committer.New(committer.Config{
		Sender: committer.Over(c.Sender), Random: c.Random, Registry: cfg.Route.Registry,
	})
	if err != nil {
		c.Sender.Close()
		return nil, err
	}
	return c, nil
}

// Close ends all calls in flight, and returns when nothing of the Conn runs any more. It may be
// called more than once.
func (c *Conn) Close() {
	c.Committer.Close()
	c.Sender.Close()
}

// Wrap turns an error into the error of package kv for a call; nil stays nil.
func (c *Conn) Wrap(op, keyspace string, err error) error { return c.cfg.Wrap(op, keyspace, err) }

// Bound adds the request timeout to a context without a deadline.
func (c *Conn) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return c.BoundLonger(ctx, 0)
}

// BoundLonger is like Bound, and adds that much to the request timeout.
func (c *Conn) BoundLonger(ctx context.Context, longer time.Duration) (context.Context,
	context.CancelFunc) {
	if c.cfg.RequestTimeout <= 0 {
		return ctx, noCancel
	}
	if _, has := ctx.Deadline(); has {
		return ctx, noCancel
	}
	return context.WithTimeout(ctx, c.cfg.RequestTimeout+longer)
}

func noCancel() {}

// Ask makes one call of the Cluster service, to any server that answers, within the request
// timeout. An error says whether the call may have been executed (outcome.IsUnknown).
func Ask[Q, R any](ctx context.Context, c *Conn, method func(clusterpb.ClusterClient,
	context.Context, *Q, ...grpc.CallOption) (*R, error), request *Q) (answer *R, err error) {
	ctx, cancel := c.Bound(ctx)
	defer cancel()
	attempts := outcome.Of(any(request).(proto.Message))
	ctx = outcome.WithID(ctx, c.Random()|1)
	err = c.Sender.Admin(ctx, func(ctx context.Context, cluster clusterpb.ClusterClient) error {
		answer, err = method(cluster, ctx, request, attempts.Option())
		attempts.Note(err)
		return err
	})
	return answer, attempts.Error(err)
}

// Partitions lists the partitions of a keyspace, or for an empty name the partitions of all
// keyspaces.
func (c *Conn) Partitions(ctx context.Context, keyspace string) (all []*clusterpb.PartitionInfo,
	err error) {
	err = c.Sender.Admin(ctx, func(ctx context.Context, cluster clusterpb.ClusterClient) error {
		all = nil
		stream, err := cluster.ListPartitions(ctx, &clusterpb.ListPartitionsRequest{Keyspace: keyspace})
		if err != nil {
			return err
		}
		for {
			p, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if err := keys.ValidatePartition(p.GetPartition()); err != nil {
				return fmt.Errorf("the server sent a descriptor that makes no sense: %w", err)
			}
			all = append(all, p)
		}
	})
	return all, err
}

// resolvePause is how long Resolve waits for the table to show a keyspace that the core knows.
const resolvePause = 100 * time.Millisecond

// Resolve finds a keyspace by its name, and has the table show its partitions. If the table does
// not have the keyspace, the core is asked: the table may lag behind. The cause of the error is
// route.ErrNoKeyspace if no keyspace has this name.
func (c *Conn) Resolve(ctx context.Context, name string) (*route.Keyspace, error) {
	for {
		table := c.Sender.Table()
		if ks := table.KeyspaceByName(name); ks != nil {
			c.Sender.Subscribe(ks)
			return ks, nil
		}
		exists := false
		if name != "" {
			var err error
			if exists, err = c.exists(ctx, name); err != nil {
				return nil, err
			}
		}
		if !exists {
			return nil, &route.Error{Cause: route.ErrNoKeyspace}
		}
		c.Sender.ReloadTable()
		if err := c.Await(ctx, table, resolvePause); err != nil {
			return nil, &route.Error{Cause: err,
				Message: "waiting for the partition table to show the keyspace"}
		}
	}
}

// exists asks the core whether a keyspace of a name exists and is not being dropped.
func (c *Conn) exists(ctx context.Context, name string) (bool, error) {
	r, err := Ask(ctx, c, clusterpb.ClusterClient.ListKeyspaces, &clusterpb.ListKeyspacesRequest{})
	if err != nil {
		return false, err
	}
	for _, info := range r.GetKeyspaces() {
		if info.Keyspace.GetName() == name && !keys.IsHidden(name) &&
			info.Keyspace.State != clusterpb.KeyspaceState_DROPPING {
			return true, nil
		}
	}
	return false, nil
}

// Await waits for a table newer than the given table, for d at most.
func (c *Conn) Await(ctx context.Context, table *route.Table, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-table.Changed():
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.Sender.Done():
		return route.ErrClosed
	}
	return nil
}

// Pause waits for d.
func (c *Conn) Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return &route.Error{Cause: ctx.Err()}
	case <-c.Sender.Done():
		return &route.Error{Cause: route.ErrClosed}
	}
}

// Tracer makes the client's trace spans; nil makes none.
func (c *Conn) Tracer() *calltrace.Tracer { return c.cfg.Route.Tracer }
