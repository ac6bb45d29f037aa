package driver

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/kv"
)

// KVPlainly is KV, except that every second update that only puts one key is a Put without a
// transaction. To an observer the two are the same.
func KVPlainly(options ...kv.TxnOption) func(client *Client, keyspace string) Transactor {
	connect := KV(options...)
	return func(client *Client, keyspace string) Transactor {
		return &plain{Transactor: connect(client, keyspace), put: client.Keyspace(keyspace).Put}
	}
}

type plain struct {
	Transactor
	put     func(ctx context.Context, key, value []byte) (kv.Timestamp, error)
	updates atomic.Uint64
}

// Update implements Transactor.
func (p *plain) Update(ctx context.Context, f func(Tx) error) (kv.Timestamp, error) {
	if p.updates.Add(1)%2 == 0 {
		var alone onePut
		if err := f(&alone); err == nil && alone.puts == 1 && !alone.more {
			return p.put(ctx, alone.key, alone.value)
		}
	}
	return p.Transactor.Update(ctx, f)
}

// onePut is a Tx without effects. It finds out whether an update only puts one key.
type onePut struct {
	key, value []byte
	puts       int
	// more is true if the update does more than that.
	more bool
}

var errMore = errors.New("this update does more than put one key")

// Get implements Tx.
func (o *onePut) Get(context.Context, []byte) ([]byte, error) { return nil, o.doesMore() }

// Scan implements Tx.
func (o *onePut) Scan(context.Context, []byte) iter.Seq2[kv.Pair, error] {
	return func(yield func(kv.Pair, error) bool) { yield(kv.Pair{}, o.doesMore()) }
}

// Put implements Tx.
func (o *onePut) Put(key, value []byte) error {
	o.key, o.value = key, value
	o.puts++
	return nil
}

// Delete implements Tx.
func (o *onePut) Delete([]byte) error { return o.doesMore() }

func (o *onePut) doesMore() error {
	o.more = true
	return errMore
}
