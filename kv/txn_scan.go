package kv

import (
	"bytes"
	"context"
	"iter"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/planted"
	"github.com/tidemarkdb/tidemark/range/route"
)

// txnScan is one running scan of a transaction or View: the rows of the moment, with the transaction's own writes as they were when it
// began.
type txnScan struct {
	reading  *reading
	keyspace *Keyspace
	route    *route.Keyspace
	q        query
	open     *openScan
	// moves is reading.moves when the rows in hand were asked for.
	moves   int
	yielded int
	// left: the loop was left, or the limit is reached.
	left bool
}

// scan yields a span; own may be nil. Errors are raw; each is the last thing it yields.
func (r *reading) scan(ctx context.Context, k *Keyspace, ks *route.Keyspace, q query, own *writeBuffer, yield func(Pair, error) bool) {
	s := &txnScan{reading: r, keyspace: k, route: ks, q: q, open: r.openAt(ks)}
	defer r.close(s.open)
	s.run(ctx, own, yield)
}

// run merges what was written with the rows.
func (s *txnScan) run(ctx context.Context, own *writeBuffer, yield func(Pair, error) bool) {
	writes := func(func([]byte, ownWrite) bool) {}
	rows := s.q
	if own != nil {
		n, deletions := own.count(s.route.ID, s.q.span)
		if n > 0 {
			writes = own.in(s.route.ID, s.q.span, s.q.reverse)
		}
		if s.q.limit > 0 {
			rows.limit += deletions // so many rows may be hidden
		}
	}
	next, stop := iter.Pull2(iter.Seq2[[]byte, ownWrite](writes))
	defer stop()
	key, write, there := next()
	// before yields what was written before a key, and nil is the end; it reports whether the key itself was written.
	before := func(row []byte) (written bool) {
		for there && !s.left {
			if row != nil {
				c := bytes.Compare(key, row)
				if s.q.reverse {
					c = -c
				}
				if c > 0 {
					return false
				}
				written = c == 0
			}
			if !write.deleted {
				s.emit(s.pair(key, write), yield)
			} else if planted.Active == planted.OwnDeletesSeen && written {
				key, write, there = next()
				return false
			}
			key, write, there = next()
			if written {
				return true
			}
		}
		return written
	}
	err := s.rows(ctx, rows, func(row Pair) (took bool) {
		written := before(row.Key)
		switch {
		case written || s.left:
		case s.reading.moves != s.moves:
			return false // the loop has moved the moment, by what it did with what was written before the row
		default:
			s.emit(row, yield)
		}
		return true
	})
	if err != nil {
		yield(Pair{}, err)
		return
	}
	if before(nil); !s.left {
		s.open.covered, s.open.any = s.q.span.Clone(), true
	}
}

// pair is a pair that the transaction itself has written.
func (s *txnScan) pair(key []byte, w ownWrite) Pair {
	p := Pair{Key: clone(key), Version: Uncommitted}
	if !s.q.keysOnly {
		p.Value = owned(w.value)
	}
	return p
}

// emit yields a pair. Before that it notes that everything up to it was read.
func (s *txnScan) emit(p Pair, yield func(Pair, error) bool) {
	o := s.open
	o.any = true
	if s.q.reverse {
		o.covered = keys.Span{Start: clone(p.Key), End: s.q.span.End}
	} else {
		o.covered = keys.Span{Start: s.q.span.Start, End: keys.Next(p.Key)}
	}
	s.yielded++
	if !yield(p, nil) || (s.q.limit > 0 && s.yielded >= s.q.limit) {
		s.left = true
	}
}

// rows calls f with the rows of the moment, until the scan is left. When the moment moves, by what is read here or in the loop, the rows
// that f has not taken yet are read again: those in hand are of the former moment.
func (s *txnScan) rows(ctx context.Context, q query, f func(Pair) (took bool)) error {
	for !s.left && !q.empty() {
		s.moves = s.reading.moves
		enough := false
		err := s.page(ctx, &q, func(p Pair) bool {
			if f(p) {
				if q.limit > 0 {
					q.limit--
					enough = q.limit == 0
				}
				if q.reverse {
					q.span.End = clone(p.Key)
				} else {
					q.span.Start = keys.Next(p.Key)
				}
			}
			return !s.left && !enough && s.reading.moves == s.moves
		})
		switch {
		case s.left || enough:
			return nil
		case err != nil:
			if err = s.reading.again(ctx, err); err != nil {
				return err
			}
		case s.reading.moves == s.moves:
			return nil
		}
	}
	return nil
}

// first says that nothing was read before the scan's next page.
func (s *txnScan) first() bool {
	r := s.reading
	return r.set.empty() && len(r.open) == 1 && !s.open.any
}

// page reads rows as long as f wants more. Nothing of it runs any more when it returns.
func (s *txnScan) page(ctx context.Context, q *query, f func(Pair) bool) error {
	inner, cancel := context.WithCancel(ctx)
	shape := *q // f changes q
	one := &scan{keyspace: s.keyspace, id: s.route.ID, hashed: s.route.Hashed(), q: &shape, total: 1,
		yield: func(p Pair, _ error) bool { return f(p) }}
	defer one.fetching.Wait()
	defer cancel()
	bounded, done := s.reading.client.bound(ctx)
	parts, err := s.reading.client.sender.PartitionsOf(bounded, s.route.ID, shape.span)
	var snap *snapshot
	if err == nil {
		// One feed asks one partition, and has its answer before anything is yielded.
		snap, err = s.reading.snapshot(bounded, (!s.route.Hashed() || len(parts) == 1) && s.first())
	}
	done()
	if err != nil {
		return err
	}
	err = one.read(inner, parts, snap)
	if one.left {
		return nil
	}
	return err
}
