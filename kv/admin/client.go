package admin

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Client administers the cluster of a kv.Client. Its methods may be called from any number of
// goroutines.
type Client struct{ conn *conn.Conn }

// New makes a client for administration from a kv.Client. It uses the connections and the user of
// the kv.Client, and needs no Close. After the kv.Client's Close, calls fail with kv.ErrClosed.
func New(client *kv.Client) *Client { return &Client{conn.Of(client)} }

// ask makes one call of the Cluster service. It converts an error to the error of the operation op
// on a keyspace. An empty name stands for the cluster.
func ask[Q, R any](ctx context.Context, c *Client, op, keyspace string,
	method func(clusterpb.ClusterClient, context.Context, *Q, ...grpc.CallOption) (*R, error),
	request *Q) (*R, error) {
	answer, err := conn.Ask(ctx, c.conn, method, request)
	if err != nil {
		return nil, c.conn.Wrap(op, keyspace, err)
	}
	return answer, nil
}

// invalid returns an error for a mistake of the caller.
func invalid(op, keyspace, format string, args ...any) error {
	return kv.NewError(op, keyspace, fmt.Sprintf(format, args...), kv.ErrInvalidArgument)
}
