package kv

import (
	"context"
	"testing"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/kv/internal/reader"
)

// fakeCluster is a fake cluster that clients are opened to.
type fakeCluster struct{ *fakeserver.Cluster }

func newFakeCluster(t testing.TB, nodes int) *fakeCluster {
	return &fakeCluster{fakeserver.Start(t, nodes)}
}

func (c *fakeCluster) open(options ...Option) *Client {
	c.TB.Helper()
	client, err := c.tryOpen(context.Background(), c.Endpoints(), options...)
	if err != nil {
		c.TB.Fatal(err)
	}
	return client
}

func (c *fakeCluster) tryOpen(ctx context.Context, endpoints []string,
	options ...Option) (*Client, error) {
	return Open(ctx, endpoints, append([]Option{Dialer(c.Dialer("client"))}, options...)...)
}

// leaderWait is how long a read waits at its beginning for partitions without a leader.
const leaderWait = reader.LeaderWait
