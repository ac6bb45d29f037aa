package kv

import (
	"bytes"
	"context"
	"iter"

	"github.com/tidemarkdb/tidemark/kv/internal/reader"
	"github.com/tidemarkdb/tidemark/kv/internal/writes"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// txnScan is a running scan of a transaction or View: the rows at its timestamp, merged with the
// transaction's own writes from before the scan began.
//
// Whenever the loop has a pair, other reads may move the timestamp. A move refreshes everything
// that is covered, and the rows after that are from the former timestamp. So each element (a row, a
// row that is hidden by an own write, or an own write) is marked as covered when it is processed.
// After a move the scan continues at the same place with rows of the new timestamp.
type txnScan struct {
	reading  *reading
	keyspace *Keyspace
	route    *route.Keyspace
	q        query
	open     *openScan
	// rest is the part of the query that is not covered yet. Its Limit is the number of rows that are
	// still needed.
	rest query
	// moves is the value of reading.moves when the current rows were requested.
	moves   int
	yielded int
	// certain is set if nothing in the span is uncertain, at the timestamp or any later one.
	certain bool
	// left is set if the loop was left, or the limit is reached.
	left bool
	// enough is set if no more rows are needed.
	enough bool
	yield  func(Pair, error) bool
	// own iterates over the transaction's own writes. there is false at the end.
	own struct {
		next  func() ([]byte, writes.Own, bool)
		key   []byte
		write writes.Own
		there bool
	}
}

// scan yields the pairs of a span. own may be nil. Errors are not converted. An error is the last
// thing that it yields.
func (r *reading) scan(ctx context.Context, k *Keyspace, ks *route.Keyspace, q query,
	own *writes.Buffer, yield func(Pair, error) bool) {
	s := &txnScan{reading: r, keyspace: k, route: ks, q: q, rest: q, open: r.openAt(ks, &q),
		yield: yield}
	defer r.close(s.open)
	s.run(ctx, own)
}

// run merges the own writes with the rows.
func (s *txnScan) run(ctx context.Context, own *writes.Buffer) {
	written := func(func([]byte, writes.Own) bool) {}
	if own != nil {
		n, deletions := own.Count(s.route.ID, s.q.Span)
		if n > 0 {
			written = own.In(s.route.ID, s.q.Span, s.q.Reverse)
		}
		if s.q.Limit > 0 {
			s.rest.Limit += deletions // own deletions may hide that many rows
		}
	}
	next, stop := iter.Pull2(iter.Seq2[[]byte, writes.Own](written))
	defer stop()
	s.own.next = next
	s.advance()
	for {
		if err := s.rows(ctx); err != nil {
			s.yield(Pair{}, err)
			return
		}
		s.before(nil)
		if s.left {
			return
		}
		if s.reading.moves == s.moves {
			break
		}
		// There may be rows after the last own write now.
	}
	s.open.covered, s.open.any = s.q.Span.Clone(), true
}

// advance moves to the next own write.
func (s *txnScan) advance() { s.own.key, s.own.write, s.own.there = s.own.next() }

// before yields the own writes up to a key, or all of them if the key is nil. written reports
// whether the transaction has written the key itself. goOn is false if the loop was left, or has
// moved the timestamp.
func (s *txnScan) before(row []byte) (written, goOn bool) {
	for s.own.there && !s.left {
		if row != nil {
			c := bytes.Compare(s.own.key, row)
			if s.q.Reverse {
				c = -c
			}
			if c > 0 {
				return false, true
			}
			written = c == 0
		}
		key, write := s.own.key, s.own.write
		s.advance()
		switch {
		case !write.Deleted:
			if s.emit(s.pair(key, write)); s.left || s.reading.moves != s.moves {
				return written, false
			}
		case !written:
		default:
			s.cover(row)
		}
		if written {
			return true, true
		}
	}
	return false, !s.left
}

// pair returns the pair of an own write.
func (s *txnScan) pair(key []byte, w writes.Own) Pair {
	p := Pair{Key: clone(key), Version: Uncommitted()}
	if !s.q.KeysOnly {
		p.Value = owned(w.Value)
	}
	return p
}

// cover records that everything up to a key was read.
func (s *txnScan) cover(key []byte) {
	o, after := s.open, keys.Next(key)
	o.any = true
	if s.q.Reverse {
		o.covered = keys.Span{Start: clone(key), End: s.q.Span.End}
		s.rest.Span.End = o.covered.Start
	} else {
		o.covered = keys.Span{Start: s.q.Span.Start, End: after}
		s.rest.Span.Start = after
	}
}

// emit yields a pair.
func (s *txnScan) emit(p Pair) {
	s.cover(p.Key)
	s.yielded++
	if !s.yield(p, nil) || (s.q.Limit > 0 && s.yielded >= s.q.Limit) {
		s.left = true
	}
}

// take processes a row, after the own writes before it. It returns false if the current rows are no
// longer valid.
func (s *txnScan) take(row *wire.Row) bool {
	written, goOn := s.before(row.Key)
	if !goOn {
		return false
	}
	if !written {
		s.emit(pairOf(row))
	}
	if s.rest.Limit > 0 {
		s.rest.Limit--
		s.enough = s.rest.Limit == 0
	}
	return !s.left && !s.enough && s.reading.moves == s.moves
}

// rows processes the rows of the rest, until the scan is left. When the timestamp moves, because of
// a read here or in the loop, the remaining rows are read again, because the current ones are from
// the former timestamp.
func (s *txnScan) rows(ctx context.Context) error {
	s.moves = s.reading.moves
	for ; !s.left && !s.enough && !s.rest.empty(); s.moves = s.reading.moves {
		ended, err := s.page(ctx)
		switch {
		case err != nil:
			if err = s.reading.again(ctx, err); err != nil {
				return err
			}
		case ended:
			return nil
		}
	}
	return nil
}

// page processes rows of the rest as long as they are valid. ended reports that there are no more
// rows. No goroutine of the page runs any more when it returns.
func (s *txnScan) page(ctx context.Context) (ended bool, err error) {
	inner, cancel := context.WithCancel(ctx)
	shape := s.rest // a copy, since take changes rest
	one := &reader.Scan{Keyspace: s.keyspace.reader(s.route), Query: shape.Query,
		Near: s.reading.near, Yield: s.take}
	defer one.Wait()
	defer cancel()
	bounded, done := s.reading.client.conn.Bound(ctx)
	parts, err := s.reading.client.conn.Sender.PartitionsOf(bounded, s.route.ID, shape.Span)
	var snap *reader.Snapshot
	if err == nil {
		snap, err = s.snapshot(bounded, parts, shape.Span)
	}
	done()
	if err != nil {
		return false, err
	}
	err = one.Read(inner, parts, snap)
	if one.Left() {
		return false, nil
	}
	return err == nil, err
}

// snapshot returns the timestamp at which the next pages are read.
func (s *txnScan) snapshot(ctx context.Context, parts []*route.Partition,
	span keys.Span) (snap *reader.Snapshot, err error) {
	first := len(s.reading.open) == 1 && s.reading.untouched()
	// A scan of a range keyspace with a small limit usually ends in the first partition, and needs no
	// such timestamp.
	small := !s.route.Hashed() && s.rest.Limit > 0 && s.rest.Limit <= reader.MaxRows
	if first && len(parts) > 1 && !s.certain && !small {
		if s.certain, err = s.reading.beginIn(ctx, s.keyspace.reader(s.route), span); err != nil {
			return nil, err
		}
	}
	// A feed asks only one partition, and has its answer before anything is yielded.
	return s.reading.snapshot(ctx, first && (!s.route.Hashed() || len(parts) == 1), s.certain)
}
