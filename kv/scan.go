package kv

import (
	"context"
	"iter"
	"math"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
)

const (
	// scanBytes bounds the pages that one scan holds, those in hand and those on their way.
	scanBytes = 64 << 20
	// Pages grow from firstRows by pageGrowth up to maxRows.
	firstRows  = 128
	pageGrowth = 4
	maxRows    = 8192
	// maxPageBytes bounds a page, however few partitions share the scan.
	maxPageBytes = 4 << 20
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
// bounded memory (64 MiB besides single rows that are larger than their share of it). Leaving the
// loop ends it at once. An error is the last thing it yields.
//
// All rows are of one moment. With At it is the one given. Otherwise the scan sees every write that
// was acknowledged before it began; what is written while it runs, it does not see. Neither other
// clients' writes nor changes of leaders end it. But a scan must end within the keyspace's GC
// window, and otherwise ends with ErrTimestampTooOld: give the keyspace a longer one.
//
// With Nearest, MaxStaleness, AnyStaleness or ReadYourWrites the moment is one that replicas can
// answer for: it is found before the first row, and read in all partitions. With
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
		s := &scan{keyspace: k, id: ks.ID, hashed: ks.Hashed(), q: &q, yield: yield, total: 1,
			began: time.Now()}
		defer s.fetching.Wait()
		defer cancel()
		if s.near, err = k.client.nearRead(inner, ks, &q); err != nil {
			yield(Pair{}, wrap(op, k.name, nil, err))
			return
		}
		if err := s.run(inner); err != nil && !s.left {
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

// scan is one running Scan. Only the goroutine of the loop uses it; the fetching goroutines use
// their feeds.
type scan struct {
	keyspace *Keyspace
	id       keys.KeyspaceID
	hashed   bool
	q        *query
	yield    func(Pair, error) bool
	// near is set if any replica may answer.
	near  *nearRead
	began time.Time

	// announced is closed when the nodes have heard of the moment; nil if they need not.
	announced chan struct{}
	// left: the loop was left. yielded: rows so far.
	left    bool
	yielded int

	// total is how many partitions, at most one of each hash number, the scan reads side by side:
	// they share its memory.
	total int
	// slots bounds the pages on their way in a merge; nil before its first pages are in hand, and
	// where there is no merge.
	slots chan struct{}
	// fetching counts the goroutines.
	fetching sync.WaitGroup
}

func (s *scan) run(ctx context.Context) error {
	parts, err := s.keyspace.client.conn.Sender.PartitionsOf(ctx, s.id, s.q.span)
	if err != nil {
		return err
	}
	if s.q.hasAt {
		s.keyspace.client.note(s.q, s.began, s.q.at, 0, false)
		return s.read(ctx, parts, exactly(s.q.at))
	}
	if len(parts) == 1 || (!s.hashed && s.q.limit > 0 && s.q.limit <= maxRows) {
		done, err := s.firstPartition(ctx, parts[0].Hash, len(parts) == 1)
		if done || err != nil {
			return err
		}
	}
	if s.near.past() {
		return s.readNear(ctx, parts)
	}
	parts, at, err := s.keyspace.moment(ctx, s.id, s.q.span, nil)
	if err != nil {
		return err
	}
	s.keyspace.client.note(s.q, s.began, at, 0, true)
	s.announce(ctx, parts, at)
	return s.read(ctx, parts, exactly(at))
}

// readNear reads at a moment that replicas can answer for.
func (s *scan) readNear(ctx context.Context, parts []*route.Partition) error {
	asked := parts
	if !s.hashed && len(parts) > maxAsked {
		// The scan may never get to most of them. What it does get to waits, or the leader answers.
		if asked = parts[:1]; s.q.reverse {
			asked = parts[len(parts)-1:]
		}
	}
	at, err := s.keyspace.nearMoment(ctx, s.id, asked, s.q.span, s.near)
	if err != nil {
		return err
	}
	s.keyspace.client.note(s.q, s.began, at, 0, false)
	return s.read(ctx, parts, exactly(at))
}

// announce has the nodes hear of the moment while the first page is read, from all that have not
// heard of it then.
func (s *scan) announce(ctx context.Context, parts []*route.Partition, at Timestamp) {
	s.announced = make(chan struct{})
	if s.hashed { // first pages of all partitions come before the first row
		s.keyspace.client.conn.Sender.Clock.RaiseSession(at)
		close(s.announced)
		return
	}
	s.fetching.Go(func() {
		defer close(s.announced)
		s.keyspace.client.conn.Sender.Announce(ctx, parts, at, announceWait)
	})
}

// firstPartition reads with the moment that the first partition's leader chooses. If that turns out
// to be all that is needed, or the scan has only one partition, it goes on from there and done is
// true; nothing was yielded otherwise.
func (s *scan) firstPartition(ctx context.Context, hash uint32, only bool) (done bool, err error) {
	t := s.pager(hash)
	first, err := t.scanPage(ctx, nil, s.q.keysOnly, s.rows(1), s.bytes(1))
	if err != nil {
		return false, err
	}
	// The table may have been old: a partition that was split holds less than was thought.
	only = only && first.answer.Partition.Span.ContainsSpan(s.q.span)
	enough := (t.over && only) || (s.q.limit > 0 && len(first.pairs) >= s.q.limit)
	if !only && !enough {
		return false, nil
	}
	s.keyspace.client.note(s.q, s.began, first.at, first.answer.Node, !s.near.past())
	if enough {
		for i := range first.pairs {
			if !s.emit(pairOf(&first.pairs[i])) {
				break
			}
		}
		return true, nil
	}
	f := &feed{scan: s, pager: t, snapshot: exactly(first.at), rows: s.rows(1), parts: 1,
		pairs: first.pairs}
	return true, s.sequential(ctx, f)
}

// pager makes the pager of the scan, or of its part of one hash number.
func (s *scan) pager(hash uint32) *pager {
	return &pager{keyspace: s.keyspace, id: s.id, hashed: s.hashed, hash: hash,
		near: s.near, reverse: s.q.reverse, rest: s.q.span}
}

// rows is the first page's size of a feed that reads so many of the partitions.
func (s *scan) rows(parts int) int {
	var rows int
	switch {
	case s.q.limit > 0:
		rows = min(expectedRows(s.q.limit, parts, s.total), maxRows)
	case s.total > 1:
		rows = min(firstRows/4*parts, firstRows*pageGrowth)
	default:
		rows = firstRows
	}
	if s.q.pageSize > 0 {
		rows = min(rows, s.q.pageSize)
	}
	return rows
}

// expectedRows is how many of the next `limit` rows of all partitions lie in so many of them: so
// many that two and a half standard deviations are covered, and few feeds need a second page.
func expectedRows(limit, parts, total int) int {
	if parts >= total {
		return limit
	}
	mean, part := float64(limit)*float64(parts)/float64(total), float64(parts)/float64(total)
	return min(limit, int(math.Ceil(mean+2.5*math.Sqrt(mean*(1-part))))+1)
}

// bytes is the greatest page of a feed that reads so many of the partitions: each feed may have one
// in hand and one on its way.
func (s *scan) bytes(parts int) int { return min(maxPageBytes, max(1, scanBytes/2/s.total*parts)) }

// read yields everything at the snapshot.
func (s *scan) read(ctx context.Context, parts []*route.Partition, snap *snapshot) error {
	first, more := s.firsts(parts)
	switch s.total = len(first); s.total {
	case 0:
		return nil
	case 1:
	default:
		return s.merge(ctx, first, more, snap)
	}
	return s.sequential(ctx,
		&feed{scan: s, pager: s.pager(parts[0].Hash), snapshot: snap, parts: 1})
}

// sequential yields one feed.
func (s *scan) sequential(ctx context.Context, f *feed) error {
	for {
		head, err := f.head(ctx)
		if err != nil || head == nil {
			return err
		}
		p := pairOf(head)
		f.pop(ctx)
		if !s.emit(p) {
			return nil
		}
	}
}

// emit yields a pair; false means that the scan is over.
func (s *scan) emit(p Pair) bool {
	if s.yielded == 0 && s.announced != nil {
		<-s.announced // comes soon
	}
	s.yielded++
	if !s.yield(p, nil) {
		s.left = true
		return false
	}
	return s.q.limit == 0 || s.yielded < s.q.limit
}
