package reader

import (
	"bytes"
	"context"

	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/range/route"
)

// feedOf reads all of one hash number.
func (s *Scan) feedOf(hash uint32, snap *Snapshot) *feed {
	return &feed{scan: s, snapshot: snap, pager: s.pager(hash), parts: 1}
}

// firsts returns, for each hash number, the partition in which the scan begins, and the numbers
// that have more partitions. A range keyspace has one number.
func (s *Scan) firsts(parts []*route.Partition) (first []*route.Partition, more map[uint32]bool) {
	if !s.Keyspace.Hashed {
		return parts[:min(1, len(parts))], nil
	}
	first = make([]*route.Partition, 0, len(parts))
	for _, p := range parts {
		n := len(first)
		if n == 0 || first[n-1].Hash != p.Hash {
			first = append(first, p)
			continue
		}
		if more == nil {
			more = make(map[uint32]bool)
		}
		if more[p.Hash] = true; s.Query.Reverse {
			first[n-1] = p
		}
	}
	return first, more
}

// behind returns the feed for the rest of a hash number, after the partition in which the scan
// begins.
func (s *Scan) behind(p *route.Partition, snap *Snapshot) *feed {
	f := s.feedOf(p.Hash, snap)
	f.asleep = true
	f.pager.advance(p, false, nil)
	return f
}

// fillAll brings the first pages of several feeds into hand.
func (s *Scan) fillAll(ctx context.Context, feeds []*feed) error {
	return conn.InParallel(ctx, len(feeds), conn.ParallelRequests, func(ctx context.Context,
		i int) error {
		return feeds[i].fill(ctx)
	})
}

// merge yields all partitions of a hash keyspace in key order. It begins in the first partition of
// each hash number. One node merges those that it leads, as one feed; a hash number with further
// partitions has a feed of its own for these, which sleeps until its turn.
func (s *Scan) merge(ctx context.Context, first []*route.Partition, more map[uint32]bool,
	snap *Snapshot) error {
	var bundles []*route.Bundle
	rest := first
	// Otherwise every partition needs its own context of what is uncertain. Nodes merge only what
	// they lead: where any replica may answer, each partition is asked by itself.
	if s.Near == nil && (snap.reading == nil || snap.certain) {
		bundles, rest = s.Keyspace.Conn.Sender.Bundles(first, 2)
	}
	feeds, asleep := make([]*feed, 0, len(bundles)+len(rest)), []*feed(nil)
	for _, b := range bundles {
		feeds = append(feeds,
			&feed{scan: s, snapshot: snap, bundle: s.bundle(b), parts: len(b.Partitions)})
		for _, p := range b.Partitions {
			if more[p.Hash] {
				asleep = append(asleep, s.behind(p, snap))
			}
		}
	}
	for _, p := range rest {
		feeds = append(feeds, s.feedOf(p.Hash, snap))
	}
	if err := s.fillAll(ctx, feeds); err != nil {
		return err
	}
	s.slots = make(chan struct{}, conn.ParallelRequests)
	h := heads{scan: s, reverse: s.Query.Reverse}
	for _, f := range feeds {
		if err := h.add(ctx, f); err != nil {
			return err
		}
	}
	h.feeds = append(h.feeds, asleep...)
	h.arrange()
	for {
		if err := h.wake(ctx); err != nil || len(h.feeds) == 0 {
			return err
		}
		f := h.feeds[0]
		row := &f.pairs[f.next]
		f.pop(ctx)
		if !s.emit(row) {
			return nil
		}
		if err := h.settle(ctx); err != nil {
			return err
		}
	}
}

// heads is a binary heap of feeds by their next key. Every feed in it has a pair in hand, or
// sleeps; the key of a sleeping feed is the earliest that it can have.
type heads struct {
	scan    *Scan
	feeds   []*feed
	reverse bool
}

// add adds a feed, unless it is at its end, and the feeds scattered from it. arrange must be called
// before the heap is used.
func (h *heads) add(ctx context.Context, f *feed) error {
	head, err := f.head(ctx)
	if err == nil && head != nil {
		h.feeds = append(h.feeds, f)
	}
	if err == nil {
		err = h.addScattered(ctx, f)
	}
	return err
}

// addScattered takes in what was scattered from a feed.
func (h *heads) addScattered(ctx context.Context, f *feed) error {
	scattered := f.scattered
	f.scattered = nil
	for _, one := range scattered {
		if err := h.add(ctx, one); err != nil {
			return err
		}
	}
	return nil
}

func (h *heads) arrange() {
	for i := len(h.feeds)/2 - 1; i >= 0; i-- {
		h.sink(i)
	}
}

// settle restores the order after the first feed's head was taken.
func (h *heads) settle(ctx context.Context) error {
	first := h.feeds[0]
	head, err := first.head(ctx)
	if err != nil {
		return err
	}
	if head == nil {
		last := len(h.feeds) - 1
		h.feeds[0] = h.feeds[last]
		h.feeds[last] = nil
		h.feeds = h.feeds[:last]
	}
	if len(first.scattered) > 0 {
		if err := h.addScattered(ctx, first); err != nil {
			return err
		}
		h.arrange()
		return nil
	}
	h.sink(0)
	return nil
}

// wake wakes the first feed, if it sleeps, and the others whose turn comes before an awake feed
// needs a further page.
func (h *heads) wake(ctx context.Context) error {
	for len(h.feeds) > 0 && h.feeds[0].asleep {
		var horizon []byte // the first of the last keys in hand
		for _, f := range h.feeds {
			if f.asleep {
				continue
			}
			if last := f.pairs[len(f.pairs)-1].Key; horizon == nil || h.goesBefore(last, horizon) {
				horizon = last
			}
		}
		var due []*feed
		for i, f := range h.feeds {
			if f.asleep && (i == 0 || horizon == nil || !h.goesBefore(horizon, f.key())) {
				due = append(due, f)
			}
		}
		for _, f := range due {
			f.asleep = false
		}
		if err := h.scan.fillAll(ctx, due); err != nil {
			return err
		}
		all := h.feeds
		h.feeds = make([]*feed, 0, len(all))
		for _, f := range all {
			if f.asleep {
				h.feeds = append(h.feeds, f)
			} else if err := h.add(ctx, f); err != nil {
				return err
			}
		}
		h.arrange()
	}
	return nil
}

// goesBefore says that the one key comes before the other one.
func (h *heads) goesBefore(a, b []byte) bool {
	c := bytes.Compare(a, b)
	if h.reverse {
		return c > 0
	}
	return c < 0
}

func (h *heads) before(i, j int) bool { return h.goesBefore(h.feeds[i].key(), h.feeds[j].key()) }

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
