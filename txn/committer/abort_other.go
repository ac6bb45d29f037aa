package committer

import (
	"context"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// AbortOther aborts a transaction at an operator's request; the transaction may be another
// client's. AbortOther releases the transaction's locks on the given keys, at least one key for
// each partition. It returns how the transaction ended; nil if nothing is known of the transaction
// any more, and nothing was done. It may be repeated.
func (c *Committer) AbortOther(ctx context.Context, t *kvpb.Transaction,
	locked []Key) (*kvpb.TransactionStatus, error) {
	places, _ := c.placesOf(ctx, locked) // they only help
	anchor := Key{Keyspace: keys.KeyspaceID(t.GetKeyspace()), Key: t.GetAnchor()}
	p, err := c.sender.Locate(ctx, anchor)
	if err != nil {
		return nil, err
	}
	r, err := c.sender.Send(ctx,
		&Request{Place: p, Key: anchor.Key, Write: true, Command: &kvpb.Request{
			Command: &kvpb.Request_EndTransaction{EndTransaction: &kvpb.EndTransactionRequest{
				Transaction: t, Participants: aborted(places), Requested: true,
			}}}})
	if err != nil {
		return nil, err
	}
	end := r.GetEndTransaction()
	if end.GetUnknown() || end.GetStatus().GetState() == kvpb.TransactionState_PENDING {
		return nil, nil
	}
	c.resolve(ctx, t, end.Status, locked, nil)
	return end.Status, nil
}
