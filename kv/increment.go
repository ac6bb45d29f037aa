package kv

import (
	"context"

	"github.com/tidemarkdb/tidemark/kv/internal/writes"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Increment adds to the number in a key, and returns the sum and its version. A number is a value
// such as "42" or "-7": the decimal digits of an int64 as text. So Put can write it, and
// strconv.ParseInt can parse the result of Get. A key without a value counts as 0. `by` may be
// negative. Increment takes effect at most once, however often the client has to send it.
//
// The expiry of the sum comes from the options or the keyspace. The expiry of the number before is
// not kept.
//
// If the key has a value that is not a number, or if the sum does not fit into an int64, Increment
// fails with ErrInvalidArgument and changes nothing. If a transaction has locked the key, Increment
// waits until ctx ends, and then fails with ErrConflict.
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

// Increment does the same as Keyspace.Increment inside the transaction: it reads the key as
// GetForUpdate does, so that transactions with the same counter take turns, and writes the sum with
// the commit. If it fails with ErrInvalidArgument, the transaction can continue without it.
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
