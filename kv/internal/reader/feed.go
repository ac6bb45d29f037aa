package reader

import (
	"context"

	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// feed is a pager or a bundle with a page in hand, and possibly the next one on its way.
type feed struct {
	scan     *Scan
	snapshot *Snapshot
	// One of these is set. While a page is on its way it belongs to the fetching goroutine.
	pager  *Pager
	bundle *bundle
	// parts is the number of the scan's partitions that it reads.
	parts int
	// rows is the size of the last page asked for.
	rows int
	// asleep is set while nothing was asked for, and until its first key may be next.
	asleep bool

	// pairs is the page in hand, from next on.
	pairs []wire.Row
	next  int
	// scattered are feeds of partitions that have left the bundle, each with its page in hand. A
	// pair that came after they had left is not yielded before they are merged.
	scattered []*feed
	// pending brings the page on its way; nil if there is none.
	pending chan fetched
}

// fetched is the result of fetching a page.
type fetched struct {
	pairs     []wire.Row
	scattered []*feed
	err       error
}

// over reports that there is no further page.
func (f *feed) over() bool {
	if f.bundle != nil {
		return f.bundle.over
	}
	return f.pager.over
}

// head returns the next pair without taking it; nil at the end.
func (f *feed) head(ctx context.Context) (*wire.Row, error) {
	for f.next == len(f.pairs) {
		f.pairs, f.next = nil, 0
		if f.pending == nil && f.over() {
			return nil, nil
		}
		if err := f.fill(ctx); err != nil {
			return nil, err
		}
	}
	return &f.pairs[f.next], nil
}

// pop takes the pair that head returned. In the second half of a page, it fetches the next one.
func (f *feed) pop(ctx context.Context) {
	f.next++
	if f.pending == nil && f.next >= len(f.pairs)/2 {
		f.prefetch(ctx)
	}
}

// fill brings the next page into hand.
func (f *feed) fill(ctx context.Context) error {
	var got fetched
	if f.pending != nil {
		got = <-f.pending // comes soon after ctx ends, too
		f.pending = nil
	} else {
		got = f.fetch(ctx)
	}
	if got.err != nil {
		return got.err
	}
	f.pairs, f.next = got.pairs, 0
	f.scattered = append(f.scattered, got.scattered...)
	return nil
}

// fetch reads the next page.
func (f *feed) fetch(ctx context.Context) (got fetched) {
	q := &f.scan.Query
	if f.rows == 0 {
		f.rows = f.scan.rows(f.parts)
	} else {
		f.rows = min(max(f.rows, 1)*pageGrowth, MaxRows)
		if q.PageSize > 0 {
			f.rows = min(f.rows, q.PageSize)
		}
	}
	if f.bundle != nil {
		return f.fetchBundle(ctx)
	}
	p, err := f.pager.scanPage(ctx, f.snapshot, q.KeysOnly, f.rows, f.scan.bytes(f.parts))
	return fetched{pairs: p.pairs, err: err}
}

// fetchBundle reads the next page of a bundle, and of each partition that leaves it.
func (f *feed) fetchBundle(ctx context.Context) (got fetched) {
	from := f.bundle.rest
	pairs, left, err := f.bundle.scanPage(ctx, f.snapshot, f.scan.Query.KeysOnly, f.rows,
		f.scan.bytes(f.parts))
	if err != nil {
		return fetched{err: err}
	}
	got.pairs = pairs
	f.parts -= len(left)
	for _, p := range left {
		// The rest, after the former end of the partition, is read by the feed that sleeps until
		// then.
		one := f.scan.feedOf(p.Hash, f.snapshot)
		one.pager.rest = from.Intersect(p.Span)
		if one.pager.over = one.pager.rest.Empty(); !one.pager.over {
			got.scattered = append(got.scattered, one)
		}
	}
	got.err = f.scan.fillAll(ctx, got.scattered)
	return got
}

// prefetch fetches the next page, unless it seems unnecessary.
func (f *feed) prefetch(ctx context.Context) {
	s := f.scan
	if f.over() || ctx.Err() != nil {
		return
	}
	if s.Query.Limit > 0 && (s.Query.Limit-s.yielded)*f.parts <= (len(f.pairs)-f.next)*s.total {
		return // the rows in hand suffice, or nearly
	}
	if s.slots != nil {
		select {
		case s.slots <- struct{}{}:
		default:
			return // enough is on its way; this page is fetched when it is needed
		}
	}
	f.pending = make(chan fetched, 1)
	pending := f.pending
	s.fetching.Go(func() {
		pending <- f.fetch(ctx)
		if s.slots != nil {
			<-s.slots
		}
	})
}

// key returns a feed's next key, or while it sleeps the earliest that it can have.
func (f *feed) key() []byte {
	switch {
	case !f.asleep:
		return f.pairs[f.next].Key
	case f.pager.reverse:
		return f.pager.rest.End
	}
	return f.pager.rest.Start
}
