package kv

import (
	"bytes"
	"context"

	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// feed is a track with a page in hand, and possibly the next one on its way.
type feed struct {
	scan     *scan
	track    *track
	snapshot *snapshot
	// share is how many feeds share the scan's memory.
	share int
	// rows is the size of the last page asked for.
	rows int

	// pairs is the page in hand, from next on.
	pairs []*kvpb.Pair
	next  int
	// pending brings the page on its way; nil if there is none. While it is not nil the track belongs to the fetching
	// goroutine.
	pending chan fetched
}

type fetched struct {
	page page
	err  error
}

// head returns the next pair without taking it; nil at the end.
func (f *feed) head(ctx context.Context) (*kvpb.Pair, error) {
	for f.next == len(f.pairs) {
		f.pairs, f.next = nil, 0
		if f.pending == nil && f.track.over {
			return nil, nil
		}
		if err := f.fill(ctx); err != nil {
			return nil, err
		}
	}
	return f.pairs[f.next], nil
}

// pop takes the pair that head returned. From the middle of a page on, the next one is sent for.
func (f *feed) pop(ctx context.Context) {
	f.pairs[f.next] = nil
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
		got.page, got.err = f.fetch(ctx)
	}
	if got.err != nil {
		return got.err
	}
	f.pairs, f.next = got.page.pairs, 0
	return nil
}

// fetch reads the next page.
func (f *feed) fetch(ctx context.Context) (page, error) {
	q := f.scan.q
	if f.rows == 0 {
		f.rows = f.scan.rows(f.share)
	} else {
		f.rows = min(max(f.rows, 1)*pageGrowth, maxRows)
		if q.pageSize > 0 {
			f.rows = min(f.rows, q.pageSize)
		}
	}
	return f.track.scanPage(ctx, f.snapshot, q.keysOnly, f.rows, f.scan.bytes(f.share))
}

// prefetch sends for the next page, unless it is not needed as far as can be told.
func (f *feed) prefetch(ctx context.Context) {
	s := f.scan
	if f.track.over || ctx.Err() != nil {
		return
	}
	if s.q.limit > 0 && s.q.limit-s.yielded <= (len(f.pairs)-f.next)*f.share {
		return // what is in hand will do, or nearly
	}
	if f.share > 1 {
		select {
		case s.slots <- struct{}{}:
		default:
			return // enough is on its way; this page is fetched when it is needed
		}
	}
	f.pending = make(chan fetched, 1)
	pending := f.pending
	s.fetching.Go(func() {
		p, err := f.fetch(ctx)
		pending <- fetched{p, err}
		if f.share > 1 {
			<-s.slots
		}
	})
}

// merge yields the feeds of all partitions of a hash keyspace in key order.
func (s *scan) merge(ctx context.Context, parts []*route.Partition, snap *snapshot) error {
	feeds := make([]*feed, len(parts))
	for i, p := range parts {
		feeds[i] = &feed{scan: s, track: s.track(p.Hash), snapshot: snap, share: len(parts)}
	}
	err := inParallel(ctx, len(feeds), parallelRequests, func(ctx context.Context, i int) error {
		f := feeds[i]
		p, err := f.fetch(ctx)
		f.pairs = p.pairs
		return err
	})
	if err != nil {
		return err
	}
	s.slots = make(chan struct{}, parallelRequests)
	h := heads{reverse: s.q.reverse}
	for _, f := range feeds {
		if err := h.add(ctx, f); err != nil {
			return err
		}
	}
	h.arrange()
	for len(h.feeds) > 0 {
		f := h.feeds[0]
		p := f.pairs[f.next]
		f.pop(ctx)
		if !s.emit(pairOf(p)) {
			return nil
		}
		if err := h.settle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// heads is a binary heap of feeds by their next key. Every feed in it has a pair in hand.
type heads struct {
	feeds   []*feed
	reverse bool
}

// add takes a feed in, unless it is at its end. arrange comes before the heap is used.
func (h *heads) add(ctx context.Context, f *feed) error {
	head, err := f.head(ctx)
	if err == nil && head != nil {
		h.feeds = append(h.feeds, f)
	}
	return err
}

func (h *heads) arrange() {
	for i := len(h.feeds)/2 - 1; i >= 0; i-- {
		h.sink(i)
	}
}

// settle restores the order after the first feed's head was taken.
func (h *heads) settle(ctx context.Context) error {
	head, err := h.feeds[0].head(ctx)
	if err != nil {
		return err
	}
	if head == nil {
		last := len(h.feeds) - 1
		h.feeds[0] = h.feeds[last]
		h.feeds[last] = nil
		h.feeds = h.feeds[:last]
	}
	h.sink(0)
	return nil
}

func (h *heads) before(i, j int) bool {
	a, b := h.feeds[i], h.feeds[j]
	c := bytes.Compare(a.pairs[a.next].Key, b.pairs[b.next].Key)
	if h.reverse {
		return c > 0
	}
	return c < 0
}

func (h *heads) sink(i int) {
	for {
		child := 2*i + 1
		if child >= len(h.feeds) {
			return
		}
		if child+1 < len(h.feeds) && h.before(child+1, child) {
			child++
		}
		if !h.before(child, i) {
			return
		}
		h.feeds[i], h.feeds[child] = h.feeds[child], h.feeds[i]
		i = child
	}
}
