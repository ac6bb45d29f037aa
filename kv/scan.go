package kv

import (
	"context"
	"iter"
	"time"

	"github.com/tidemarkdb/tidemark/kv/internal/reader"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Scan iterates over pairs in key order.
//
//	for pair, err := range ks.Scan(ctx, kv.Prefix([]byte("user/")), kv.Limit(100)) {
//		if err != nil {
//			return err
//		}
//		...
//	}
//
// It streams: pages are fetched as the loop consumes them, at most one ahead for each partition, in
// bounded memory (64 MiB, apart from single rows that are larger than their share of it). Leaving
// the loop ends it at once. An error is the last thing it yields.
//
// All rows are of one timestamp. With At it is the given one. Otherwise the scan sees every write
// that was acknowledged before it began, and none that is written while it runs. Neither other
// clients' writes nor changes of leaders end it. But a scan must end within the keyspace's GC
// window; otherwise it fails with ErrTimestampTooOld: give the keyspace a longer window.
//
// With Nearest, MaxStaleness, AnyStaleness or ReadYourWrites the timestamp is one for which
// replicas can answer: it is found before the first row, and read in all partitions. With
// LinearizableFollower it is the latest, and the nearest replicas answer.
func (k *Keyspace) Scan(ctx context.Context, options ...ScanOption) iter.Seq2[Pair, error] {
	return func(yield func(Pair, error) bool) {
		const op = "scan"
		var q query
		for _, o := range options {
			o.scan(&q)
		}
		if bad := q.check(); bad != "" {
			yield(Pair{}, invalid(op, k.name, nil, "%s", bad))
			return
		}
		ks, err := k.boundedResolve(ctx, op)
		if err != nil {
			yield(Pair{}, err)
			return
		}
		if q.empty() {
			return
		}
		// Whatever is in flight when the loop ends is cancelled, and waited for.
		inner, cancel := context.WithCancel(ctx)
		s := &reader.Scan{Keyspace: k.reader(ks), Query: q.Query,
			Yield: func(row *wire.Row) bool { return yield(pairOf(row), nil) }}
		began := time.Now()
		if q.info != nil {
			s.Note = func(at Timestamp, node keys.NodeID, latest bool) {
				k.client.note(&q, began, at, node, latest)
			}
		}
		defer s.Wait()
		defer cancel()
		if s.Near, err = k.client.nearRead(inner, ks, &q); err != nil {
			yield(Pair{}, wrap(op, k.name, nil, err))
			return
		}
		if err := s.Run(inner); err != nil && !s.Left() {
			yield(Pair{}, wrap(op, k.name, nil, err))
		}
	}
}

// boundedResolve is resolve within the request timeout.
func (k *Keyspace) boundedResolve(ctx context.Context, op string) (*route.Keyspace, error) {
	ctx, cancel := k.client.conn.Bound(ctx)
	defer cancel()
	return k.resolve(ctx, op)
}
