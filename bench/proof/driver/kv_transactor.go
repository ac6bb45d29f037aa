package driver

import (
	"context"
	"iter"

	"github.com/tidemarkdb/tidemark/kv"
)

// KV returns a function for Transactional that makes Transactors from the SDK's transactions. Every
// update uses the options.
func KV(options ...kv.TxnOption) func(client *Client, keyspace string) Transactor {
	return func(client *Client, keyspace string) Transactor {
		return &sdk{client, client.Keyspace(keyspace).SDK(), options}
	}
}

type sdk struct {
	client   *Client
	keyspace *kv.Keyspace
	options  []kv.TxnOption
}

// Update implements Transactor.
func (s *sdk) Update(ctx context.Context, f func(Tx) error) (kv.Timestamp, error) {
	return s.client.Update(ctx, "update",
		func(tx *kv.Txn) error { return f(&sdkTxn{tx, s.keyspace}) }, s.options...)
}

// View implements Transactor.
func (s *sdk) View(ctx context.Context, f func(Tx) error) (at kv.Timestamp, err error) {
	err = s.client.View(ctx, "view", func(view *kv.Snapshot) error {
		err := f(&sdkSnapshot{view, s.keyspace})
		at = view.Timestamp()
		return err
	})
	return at, err
}

// ViewAt implements Transactor.
func (s *sdk) ViewAt(ctx context.Context, at kv.Timestamp, f func(Tx) error) error {
	return s.client.ViewAt(ctx, at,
		func(view *kv.Snapshot) error { return f(&sdkSnapshot{view, s.keyspace}) })
}

type sdkTxn struct {
	*kv.Txn
	keyspace *kv.Keyspace
}

// Get implements Tx. Some keys are locked by every read of a transaction. Other keys are not.
func (t *sdkTxn) Get(ctx context.Context, key []byte) ([]byte, error) {
	get := t.Txn.Get
	if len(key) > 0 && key[len(key)-1]%3 == 0 {
		get = t.Txn.GetForUpdate
	}
	p, err := get(ctx, t.keyspace, key)
	return p.Value, err
}

// Scan implements Tx.
func (t *sdkTxn) Scan(ctx context.Context, prefix []byte) iter.Seq2[kv.Pair, error] {
	return t.Txn.Scan(ctx, t.keyspace, kv.Prefix(prefix))
}

// Put implements Tx.
func (t *sdkTxn) Put(key, value []byte) error { return t.Txn.Put(t.keyspace, key, value) }

// Delete implements Tx.
func (t *sdkTxn) Delete(key []byte) error { return t.Txn.Delete(t.keyspace, key) }

type sdkSnapshot struct {
	*kv.Snapshot
	keyspace *kv.Keyspace
}

// Get implements Tx.
func (s *sdkSnapshot) Get(ctx context.Context, key []byte) ([]byte, error) {
	p, err := s.Snapshot.Get(ctx, s.keyspace, key)
	return p.Value, err
}

// Scan implements Tx.
func (s *sdkSnapshot) Scan(ctx context.Context, prefix []byte) iter.Seq2[kv.Pair, error] {
	return s.Snapshot.Scan(ctx, s.keyspace, kv.Prefix(prefix))
}

// Put implements Tx. A call is a mistake of the workload.
func (s *sdkSnapshot) Put(_, _ []byte) error { return kv.ErrInvalidArgument }

// Delete implements Tx. A call is a mistake of the workload.
func (s *sdkSnapshot) Delete([]byte) error { return kv.ErrInvalidArgument }
