package kv

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// MaxTransactionAge is how long after its attempt began a transaction may hold locks of the
// keyspace: then it is aborted, so that others get them. From a second to a week; the default is an
// hour.
func MaxTransactionAge(d time.Duration) KeyspaceOption {
	return func(r *clusterpb.CreateKeyspaceRequest) (err error) {
		r.TxnMaxAgeMillis, err = limitMillis("age", d)
		return err
	}
}

// MaxTransactionIdle is for how long a transaction may hold locks of the keyspace while the
// application makes no call in it, though the client lives: then it is aborted. From a second to a
// week; the default is two minutes. One that is no less than MaxTransactionAge has no effect.
func MaxTransactionIdle(d time.Duration) KeyspaceOption {
	return func(r *clusterpb.CreateKeyspaceRequest) (err error) {
		r.TxnMaxIdleMillis, err = limitMillis("idle time", d)
		return err
	}
}

func limitMillis(what string, d time.Duration) (uint64, error) {
	if d < txn.MinLimit || d > txn.MaxLimit {
		return 0, fmt.Errorf("a maximum %s of transactions of %s: it is from %s to %s",
			what, d, txn.MinLimit, txn.MaxLimit)
	}
	return uint64(d / time.Millisecond), nil
}

// KeyspaceChanges are what AlterKeyspace changes; what is zero stays as it is.
type KeyspaceChanges struct {
	// MaxTransactionAge and MaxTransactionIdle are as the options of the same names. They count for
	// transactions that are under way too, as soon as the nodes have heard of them.
	MaxTransactionAge, MaxTransactionIdle time.Duration
}

// AlterKeyspace changes settings of a keyspace. ErrKeyspaceNotFound if there is none of this name.
// It may be repeated.
func (c *Client) AlterKeyspace(ctx context.Context, name string, changes KeyspaceChanges) error {
	const op = "alter keyspace"
	request := &clusterpb.AlterKeyspaceRequest{Name: name}
	var err error
	if d := changes.MaxTransactionAge; d != 0 {
		if request.TxnMaxAgeMillis, err = limitMillis("age", d); err != nil {
			return invalid(op, name, nil, "%v", err)
		}
	}
	if d := changes.MaxTransactionIdle; d != 0 {
		if request.TxnMaxIdleMillis, err = limitMillis("idle time", d); err != nil {
			return invalid(op, name, nil, "%v", err)
		}
	}
	if changes == (KeyspaceChanges{}) {
		return invalid(op, name, nil, "nothing is to be changed")
	}
	ctx, cancel := c.bound(ctx)
	defer cancel()
	return wrapAdmin(op, name, c.sender.Admin(ctx, func(ctx context.Context, cluster clusterpb.ClusterClient) error {
		_, err := cluster.AlterKeyspace(ctx, request)
		return err
	}))
}
