package kv

import (
	"context"
	"errors"
)

// BatchPut writes many keys, in any partitions, at one timestamp, which it returns: all of them or
// none. Only Key and Value of a pair are looked at. A key may be there once. No pairs are no write,
// with a zero timestamp.
//
// Keys of one partition cost one request, like a Batch. Keys of several are a transaction
// (two-phase commit), which is run again when others are in the way, until ctx ends; its limits
// hold (ErrTransactionTooLarge), and its errors are those of Update. To write as much as possible
// with no need for all or nothing, commit one Batch for each partition instead.
func (k *Keyspace) BatchPut(ctx context.Context, pairs []Pair) (Timestamp, error) {
	const op = "batch put"
	seen := make(map[string]struct{}, len(pairs))
	for i := range pairs {
		key := pairs[i].Key
		if err := k.check(op, key, pairs[i].Value, ""); err != nil {
			return Timestamp{}, err
		}
		if _, twice := seen[string(key)]; twice {
			return Timestamp{}, invalid(op, k.name, key, "the key is given twice; a key may appear once")
		}
		seen[string(key)] = struct{}{}
	}
	if len(pairs) == 0 {
		return Timestamp{}, nil
	}
	at, err := k.client.Update(ctx, func(tx *Txn) error {
		for i := range pairs {
			if err := tx.Put(k, pairs[i].Key, pairs[i].Value); err != nil {
				return err
			}
		}
		return nil
	})
	return at, named(op, k.name, err)
}

// named says of an error of Update which call it is of.
func named(op, keyspace string, err error) error {
	var e *Error
	if errors.As(err, &e) && e.Op == "update" {
		e.Op = op
		if e.Keyspace == "" {
			e.Keyspace = keyspace
		}
	}
	return err
}
