package kv

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/kv/internal/feed"
	"github.com/tidemarkdb/tidemark/range/route"
)

// Timestamp is a time of the cluster, and the version of a value. Its text form is a string such as
// "1763632000.123456789.3".
type Timestamp = hlc.Timestamp

// ParseTimestamp parses the text that Timestamp.String returns.
func ParseTimestamp(s string) (Timestamp, error) { return hlc.Parse(s) }

// TimestampOf returns the timestamp of the time t, for At.
func TimestampOf(t time.Time) Timestamp { return hlc.FromTime(t) }

// Client talks to one cluster. Make one and share it; close it at the end. Package admin has the
// administration of the cluster.
type Client struct {
	conn  *conn.Conn
	feeds *feed.Metrics
	// creating is called with the progress of keyspaces that are being set up. It may be nil.
	creating func(keyspace string, made, total int)
}

func init() { conn.Of = func(client any) *conn.Conn { return client.(*Client).conn } }

// Open connects to the cluster of the endpoints (addresses, "host:port", of any of its servers). An
// endpoint may also be a list, "host:port,host:port", as in an environment variable. Open returns
// when a server has sent the partition table. If no server can be reached, it returns an error with
// the reason for each; if servers are reached and not ready, it waits for them until ctx ends
// (without a deadline: 10 seconds).
func Open(ctx context.Context, endpoints []string, options ...Option) (*Client, error) {
	cfg := config{Config: conn.Config{RequestTimeout: DefaultRequestTimeout,
		DefaultClockOffset: DefaultMaxClockOffset, Wrap: wrapAdmin}}
	endpoints, err := splitEndpoints(endpoints)
	if err != nil {
		return nil, err
	}
	cfg.Route.Endpoints = endpoints
	for _, o := range options {
		o.open(&cfg)
	}
	c := &Client{creating: cfg.creating}
	if c.conn, err = conn.New(cfg.Config); err != nil {
		return nil, invalid("open", "", nil, "%v", err)
	}
	if c.feeds, err = feed.NewMetrics(cfg.Route.Registry, c.conn.Logger); err != nil {
		c.conn.Close()
		return nil, invalid("open", "", nil, "%v", err)
	}
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, openTimeout)
		defer cancel()
	}
	if _, err = c.conn.Sender.AwaitTable(ctx); err != nil {
		c.Close()
		if ended := new(route.Error); errors.As(err, &ended) {
			return nil, wrap("open", "", nil, err)
		}
		e := &Error{Op: "open", Message: route.Plain(err.Error()), wraps: append(causes(err), err)}
		if unreachable := new(route.UnreachableError); errors.As(err, &unreachable) &&
			!unreachable.Advised() {
			e.Message += "; check that the servers run, and the endpoints"
		}
		if ctx.Err() == nil || !errors.Is(err, context.Canceled) {
			e.wraps = append(e.wraps, ErrUnavailable)
		}
		return nil, e
	}
	if err := c.conn.Sender.AwaitIdentity(ctx); err != nil {
		c.Close()
		return nil, wrap("open", "", nil, err)
	}
	c.conn.Sender.Greet(ctx)
	return c, nil
}

// Close ends all calls in flight with ErrClosed, or with ErrOutcomeUnknown for writes that may have
// been executed. It closes the connections, and returns when no goroutine of the client runs any
// more. Before that, the clean-up of committed transactions gets up to a second. Close may be
// called more than once.
func (c *Client) Close() error {
	c.conn.Close()
	c.feeds.Unregister()
	return nil
}

// Timestamp returns the highest timestamp that the client has seen: everything that it has read or
// written so far is visible at this timestamp. Pass it to At to read that state again, or to
// Observe of another client.
func (c *Client) Timestamp() Timestamp { return c.conn.Sender.Clock.Session() }

// Observe makes sure that everything the client does from now on happens after ts. If another
// client sends its Timestamp with a message, call Observe with it: then this client sees everything
// that the other client had seen. Uncommitted, the version of a write of an open transaction, is
// ignored.
func (c *Client) Observe(ts Timestamp) {
	if ts != Uncommitted() {
		c.conn.Sender.Clock.Saw(ts)
	}
}

// Cluster returns the cluster's id.
func (c *Client) Cluster() uint64 { return c.conn.Sender.Table().Cluster }

// Now returns the time by the clocks of the cluster, at or above every timestamp that this client
// has seen. Use it to compute timestamps in the past, for reads or feeds: the clock of this machine
// may be wrong. It waits for the answer of a node until ctx ends, or for the request timeout.
func (c *Client) Now(ctx context.Context) (Timestamp, error) {
	ctx, cancel := c.conn.Bound(ctx)
	defer cancel()
	at, err := c.conn.AskNow(ctx)
	return at, wrap("ask the time", "", nil, err)
}

// splitEndpoints splits lists, "host:port,host:port", and refuses texts that cannot be addresses.
func splitEndpoints(endpoints []string) ([]string, error) {
	var all []string
	for _, list := range endpoints {
		for endpoint := range strings.SplitSeq(list, ",") {
			if endpoint = strings.TrimSpace(endpoint); endpoint == "" {
				return nil, invalid("open", "", nil,
					"one of the endpoints is empty; want addresses such as 127.0.0.1:7400")
			}
			all = append(all, endpoint)
		}
	}
	if len(all) == 0 {
		return nil, invalid("open", "", nil,
			"no endpoints are given; want addresses such as 127.0.0.1:7400")
	}
	return all, nil
}
