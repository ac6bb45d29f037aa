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
// transaction's own writes as they were when the scan began.
//
// The timestamp may move, because of other reads, whenever the loop has a pair in hand. Then
// everything that is covered was refreshed, and the rows after it are of the former timestamp. So
// whatever is taken into account (a row, a row that is hidden by an own write, or an own write) is
// covered at that time, and after a move the scan continues right there with rows of the new
// timestamp.
type txnScan struct {
	reading  *reading
	keyspace *Keyspace
	route    *route.Keyspace
	q        query
	open     *openScan
	// rest is what has not been covered; its Limit is the number of rows that are still needed.
	rest query
	// moves is reading.moves when the rows in hand were asked for.
	moves   int
	yielded int
	// certain is set if nothing is uncertain in the span, at the timestamp or any later one.
	certain bool
	// left is set if the loop was left, or the limit is reached.
	left bool
	// enough is set if no more rows are needed.
	enough bool
	yield  func(Pair, error) bool
	// own iterates over the transaction's own writes; there is false at the end.
	own struct {
		next  func() ([]byte, writes.Own, bool)
		key   []byte
		write writes.Own
		there bool
	}
}

// scan yields a span; own may be nil. Errors are raw; each is the last thing it yields.
func (r *reading) scan(ctx context.Context, k *Keyspace, ks *route.Keyspace, q query,
	own *writes.Buffer, yield func(Pair, error) bool) {
	s := &txnScan{reading: r, keyspace: k, route: ks, q: q, rest: q, open: r.openAt(ks, &q),
		yield: yield}
	defer r.close(s.open)
	s.run(ctx, own)
}

// run merges what was written with the rows.
func (s *txnScan) run(ctx context.Context, own *writes.Buffer) {
	written := func(func([]byte, writes.Own) bool) {}
	if own != nil {
		n, deletions := own.Count(s.route.ID, s.q.Span)
		if n > 0 {
			written = own.In(s.route.ID, s.q.Span, s.q.Reverse)
		}
		if s.q.Limit > 0 {
			s.rest.Limit += deletions // own deletions may hide so many rows
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
		// There may be rows now after the last written key.
	}
	s.open.covered, s.open.any = s.q.Span.Clone(), true
}

// advance goes on to the next own write.
func (s *txnScan) advance() { s.own.key, s.own.write, s.own.there = s.own.next() }

// before yields the own writes up to a key (nil: all). written reports that the key itself was
// written; goOn is false if the loop was left, or has moved the timestamp.
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

// pair returns a pair that the transaction itself has written.
func (s *txnScan) pair(key []byte, w writes.Own) Pair {
	p := Pair{Key: clone(key), Version: Uncommitted()}
	if !s.q.KeysOnly {
		p.Value = owned(w.Value)
	}
	return p
}

// cover notes that everything up to a key was read.
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

// take takes a row into account, after the own writes before it; false means that the rows in hand
// are no longer valid.
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

// rows takes the rows of the rest, until the scan is left. When the timestamp moves, because of a
// read here or in the loop, the rows that were not taken yet are read again, since those in hand
// are of the former timestamp.
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

// page takes rows of the rest as long as they are valid; ended reports that there are no more.
// Nothing of it runs any more when it returns.
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
	// A scan of a range keyspace with a small limit mostly ends in the first partition, and needs
	// no such timestamp.
	small := !s.route.Hashed() && s.rest.Limit > 0 && s.rest.Limit <= reader.MaxRows
	if first && len(parts) > 1 && !s.certain && !small {
		if s.certain, err = s.reading.beginIn(ctx, s.keyspace.reader(s.route), span); err != nil {
			return nil, err
		}
	}
	// One feed asks one partition, and has its answer before anything is yielded.
	return s.reading.snapshot(ctx, first && (!s.route.Hashed() || len(parts) == 1), s.certain)
}
