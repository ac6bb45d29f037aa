package kv

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/txn/committer"
)

// Timestamp is a moment in the cluster's time, and the version of a value. It prints as, and is
// parsed from, a string such as "1763632000.123456789.3".
type Timestamp = hlc.Timestamp

// ParseTimestamp reads what Timestamp.String wrote.
func ParseTimestamp(s string) (Timestamp, error) { return hlc.Parse(s) }

// TimestampOf is the moment t, for At.
func TimestampOf(t time.Time) Timestamp { return hlc.FromTime(t) }

// Client talks to one cluster. Make one and share it; close it at the end.
type Client struct {
	sender    *route.Sender
	committer *committer.Committer
	feeds     *feedMetrics
	cfg       config
	random    func() uint64
}

// Open connects to the cluster that the endpoints (addresses, "host:port", of any of its servers)
// belong to. An endpoint may also be a list, "host:port,host:port", as an environment variable has
// it. Open returns when a server has sent the partition table; if none of the servers can be
// reached, it returns an error that says why for each of them; if there are some and they are not
// ready, it waits for them until ctx ends (without a deadline: 10 seconds).
func Open(ctx context.Context, endpoints []string, options ...Option) (*Client, error) {
	c := &Client{cfg: config{requestTimeout: DefaultRequestTimeout}}
	endpoints, err := splitEndpoints(endpoints)
	if err != nil {
		return nil, err
	}
	c.cfg.route.Endpoints = endpoints
	for _, o := range options {
		o.open(&c.cfg)
	}
	c.random = c.cfg.route.Random
	if c.random == nil {
		c.random = rand.Uint64
	}
	if c.sender, err = route.New(c.cfg.route); err != nil {
		return nil, invalid("open", "", nil, "%v", err)
	}
	c.committer, err = committer.New(committer.Config{
		Sender: committer.Over(c.sender), Random: c.random, Registry: c.cfg.route.Registry,
	})
	if err != nil {
		c.sender.Close()
		return nil, invalid("open", "", nil, "%v", err)
	}
	if c.feeds, err = newFeedMetrics(c.cfg.route.Registry, c.logger()); err != nil {
		c.committer.Close()
		c.sender.Close()
		return nil, invalid("open", "", nil, "%v", err)
	}
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, openTimeout)
		defer cancel()
	}
	if _, err = c.sender.AwaitTable(ctx); err != nil {
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
	if err := c.sender.AwaitIdentity(ctx); err != nil {
		c.Close()
		return nil, wrap("open", "", nil, err)
	}
	c.sender.Greet(ctx)
	return c, nil
}

// Close ends all calls that are in flight (with ErrClosed, or ErrOutcomeUnknown for writes that may
// have been executed), closes the connections, and returns when nothing of the client runs any
// more. Before that, what committed transactions have left to be tidied up gets a second. It may be
// called more than once.
func (c *Client) Close() error {
	c.committer.Close()
	c.sender.Close()
	c.feeds.unregister()
	return nil
}

// Timestamp is the highest timestamp that the client has seen: everything it has read or written so
// far is visible at it. Give it to At to read that state again, or to another client's Observe.
func (c *Client) Timestamp() Timestamp { return c.sender.Session() }

// Observe makes sure that what the client does from now on happens after ts: a message from another
// client that carries its Timestamp can be relied on. Uncommitted, the version of what an open
// transaction has written, says nothing and is left alone.
func (c *Client) Observe(ts Timestamp) {
	if ts != Uncommitted() {
		c.sender.Saw(ts)
	}
}

// Cluster is the cluster's id.
func (c *Client) Cluster() uint64 { return c.sender.Table().Cluster }

// maxClockOffset is how far the clocks of two nodes may be apart.
func (c *Client) maxClockOffset() time.Duration {
	said := c.sender.MaxClockOffset()
	if said == 0 {
		said = DefaultMaxClockOffset
	}
	return max(said, c.cfg.maxClockOffset)
}

// bound gives a context without a deadline the request timeout.
func (c *Client) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.cfg.requestTimeout <= 0 {
		return ctx, noCancel
	}
	if _, has := ctx.Deadline(); has {
		return ctx, noCancel
	}
	return context.WithTimeout(ctx, c.cfg.requestTimeout)
}

func noCancel() {}

func (c *Client) logger() *slog.Logger {
	if c.cfg.route.Logger != nil {
		return c.cfg.route.Logger
	}
	return slog.New(slog.DiscardHandler)
}

// splitEndpoints takes lists apart, "host:port,host:port", and refuses what cannot be an address.
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
