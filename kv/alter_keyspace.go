package kv

import (
	"context"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// AlterKeyspace changes settings of a keyspace; what no option names stays as it is.
// ErrKeyspaceNotFound if there is none of this name. It may be repeated.
func (c *Client) AlterKeyspace(ctx context.Context, name string, changes ...AlterOption) error {
	const op = "alter keyspace"
	if len(changes) == 0 {
		return invalid(op, name, nil, "nothing is to be changed")
	}
	var s keyspaceSettings
	for _, o := range changes {
		o.alter(&s)
	}
	if s.bad != nil {
		return invalid(op, name, nil, "%v", s.bad)
	}
	request := &clusterpb.AlterKeyspaceRequest{
		Name:             name,
		TxnMaxAgeMillis:  uint64(s.maxAge.Milliseconds()),
		TxnMaxIdleMillis: uint64(s.maxIdle.Milliseconds()),
	}
	ctx, cancel := c.bound(ctx)
	defer cancel()
	return wrapAdmin(op, name, c.sender.Admin(ctx, func(ctx context.Context, cluster clusterpb.ClusterClient) error {
		_, err := cluster.AlterKeyspace(ctx, request)
		return err
	}))
}
