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
// A Scan is streamed: pages are fetched as the loop consumes them, at most one page ahead for each
// partition. Its memory is limited to 64 MiB, apart from single rows that are larger than their
// share of it. Leaving the loop ends the scan at once. If an error occurs, it is the last thing
// that the scan yields.
//
// All rows have one timestamp. With At it is the given one. Otherwise the scan sees every write
// that was acknowledged before it began, and no write that is made while it runs. Neither writes of
// other clients nor changes of leaders make it fail. But a scan must end within the keyspace's GC
// window. Otherwise it fails with ErrTimestampTooOld: give the keyspace a longer window.
//
// With Nearest, MaxStaleness, AnyStaleness or ReadYourWrites, the timestamp is one for which
// replicas can answer. It is chosen before the first row, and is the same in all partitions. With
// LinearizableFollower it is the latest timestamp, and the nearest replicas answer.
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
		// When the loop ends, requests in flight are cancelled, and their end is awaited.
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

// boundedResolve does the same as resolve, within the request timeout.
func (k *Keyspace) boundedResolve(ctx context.Context, op string) (*route.Keyspace, error) {
	ctx, cancel := k.client.conn.Bound(ctx)
	defer cancel()
	return k.resolve(ctx, op)
}
