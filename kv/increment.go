package kv

import (
	"context"

	"github.com/tidemarkdb/tidemark/kv/internal/writes"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Increment adds to the number that a key holds, and returns the sum and its version. A number is a
// value like "42" or "-7": the decimal digits of an int64 as text, so that Put can write it, and
// strconv.ParseInt reads what Get returns. A key without a value holds 0, and by may be negative.
// Increment takes effect at most once, however often the client has to send it.
//
// The sum expires as the options, or the keyspace, say, whatever the expiry of the number before
// it.
//
// A key that holds something else, and a sum that does not fit into an int64, fail with
// ErrInvalidArgument and change nothing. If a transaction has locked the key, Increment waits until
// ctx ends: ErrConflict.
func (k *Keyspace) Increment(ctx context.Context, key []byte, by int64,
	options ...WriteOption) (int64, Timestamp, error) {
	const op = "increment"
	w := newWriteOptions(options)
	if err := k.check(op, key, nil, w.bad); err != nil {
		return 0, Timestamp{}, err
	}
	answer, err := k.one(ctx, op, key, true, &kvpb.Request{
		Command: &kvpb.Request_Increment{Increment: &kvpb.IncrementRequest{Key: key, By: by,
			Ttl: int64(w.lifetime)}}})
	if err != nil {
		return 0, Timestamp{}, err
	}
	r := answer.GetIncrement()
	return r.GetValue(), fromWire(r.GetVersion()), nil
}

// Increment is Keyspace.Increment inside the transaction: it reads the key as GetForUpdate does, so
// that transactions that count the same thing take turns, and writes the sum with the commit. When
// it fails with ErrInvalidArgument the transaction can go on without it.
func (t *Txn) Increment(ctx context.Context, ks *Keyspace, key []byte, by int64,
	options ...WriteOption) (int64, error) {
	const op = "increment"
	w := newWriteOptions(options)
	if w.bad != "" {
		return 0, invalid(op, ks.name, key, "%s", w.bad)
	}
	p, err := t.lookUp(ctx, op, ks, key, true)
	if err != nil {
		return 0, err
	}
	sum, err := keys.AddNumber(p.Value, p.Exists(), by)
	if err != nil {
		return 0, invalid(op, ks.name, key, "%v", err)
	}
	return sum, t.write(op, ks, key, writes.Own{Value: keys.FormatNumber(sum), Lifetime: w.lifetime})
}
