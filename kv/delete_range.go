package kv

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/kv/internal/writes"
)

// DeleteRange deletes all keys of a span. The span must be given: Prefix, From, To, or All. It
// returns the number of deleted keys.
//
// It is not atomic. It works in chunks of a thousand keys, in several partitions at a time, and
// each chunk is deleted atomically. Keys that are written meanwhile may or may not be deleted. If
// it ends early, with its context or by an error, it returns the number of deletions that are
// certain, along with the error. Call it again to continue.
func (k *Keyspace) DeleteRange(ctx context.Context, options ...DeleteRangeOption) (uint64, error) {
	const op = "delete-range"
	var q query
	for _, o := range options {
		o.deleteRange(&q)
	}
	if !q.explicit {
		q.bad = "no keys are given; use Prefix, From and To, or All"
	}
	if bad := q.check(); bad != "" {
		return 0, invalid(op, k.name, nil, "%s", bad)
	}
	ks, err := k.boundedResolve(ctx, op)
	if err != nil || q.empty() {
		return 0, err
	}
	deleted, err := k.reader(ks).DeleteRange(ctx, q.Span)
	if err == nil || deleted == 0 {
		return deleted, wrap(op, k.name, nil, err)
	}
	err = wrap(op, k.name, nil, err)
	var e *Error
	if errors.As(err, &e) {
		e.Message = fmt.Sprintf("%d keys were deleted so far; %s", deleted, e.Message)
	}
	return deleted, err
}

// DeleteRange deletes all keys of a span. The span must be given: Prefix, From, To, or All. It
// returns the number of deleted keys. It reads the span, and each key counts as a write of the
// transaction.
func (t *Txn) DeleteRange(ctx context.Context, ks *Keyspace,
	options ...DeleteRangeOption) (uint64, error) {
	const op = "delete-range"
	var deleted uint64
	for p, err := range t.scanAs(ctx, op, ks, func(q *query) {
		for _, o := range options {
			o.deleteRange(q)
		}
		if !q.explicit {
			q.bad = "no keys are given; use Prefix, From and To, or All"
		}
		q.KeysOnly = true
	}) {
		if err == nil {
			err = t.write(op, ks, p.Key, writes.Own{Deleted: true})
		}
		if err != nil {
			return deleted, err
		}
		deleted++
	}
	return deleted, nil
}
