package kv

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/kv/internal/reader"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// BatchGet reads many keys, in any partitions, at one timestamp. It returns a pair for each key, in
// the order of the keys. Exists is false for keys without a value.
//
// If the keys are in several partitions, there are two rounds. The first round reads each partition
// at its latest timestamp. The second round reads at a timestamp that is late enough for all of
// them. With Nearest, MaxStaleness, AnyStaleness or ReadYourWrites that is the earliest timestamp
// for which a replica answered. With LinearizableFollower the leaders name the timestamp, and
// replicas are read at it.
func (k *Keyspace) BatchGet(ctx context.Context, userKeys [][]byte,
	options ...GetOption) ([]Pair, error) {
	const op = "batch-get"
	var q query
	for _, o := range options {
		o.get(&q)
	}
	if bad := q.check(); bad != "" {
		return nil, invalid(op, k.name, nil, "%s", bad)
	}
	for _, key := range userKeys {
		if err := k.check(op, key, nil, ""); err != nil {
			return nil, err
		}
	}
	pairs := make([]Pair, len(userKeys))
	if len(userKeys) == 0 {
		return pairs, nil
	}
	ctx, cancel := k.client.conn.Bound(ctx)
	defer cancel()
	ks, err := k.resolve(ctx, op)
	if err != nil {
		return nil, err
	}
	n, err := k.client.nearRead(ctx, ks, &q)
	if err != nil {
		return nil, wrap(op, k.name, nil, err)
	}
	began := time.Now()
	at, err := k.reader(ks).BatchGet(ctx, userKeys, &q.Query, n, takeInto(pairs))
	if err != nil {
		return nil, wrap(op, k.name, nil, err)
	}
	k.client.note(&q, began, at, 0, !n.Past() && !q.HasAt)
	return pairs, nil
}

// takeInto returns a function that puts rows into pairs.
func takeInto(pairs []Pair) reader.Take {
	return func(i int, row wire.Row) { pairs[i] = pairOf(&row) }
}
