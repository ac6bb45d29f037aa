package kv

import (
	"context"
	"iter"
	"sync"

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
// It streams: pages are fetched as the loop consumes them, at most one ahead for each partition, in bounded memory (64 MiB
// besides single rows that are larger than their share of it). Leaving the loop ends it at once. An error is the last thing it
// yields.
//
// All rows are of one moment. With At it is the one given. Otherwise the scan sees every write that was acknowledged before
// it began; what is written while it runs, it does not see. A scan must end within the keyspace's GC window, and otherwise ends
// with ErrTimestampTooOld. See also ErrSnapshotUncertain.
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
		s := &scan{keyspace: k, id: ks.ID, hashed: ks.Hashed(), q: &q, yield: yield}
		defer s.fetching.Wait()
		defer cancel()
		if err := s.run(inner); err != nil && !s.left {
			yield(Pair{}, wrap(op, k.name, nil, err))
		}
	}
}

// boundedResolve is resolve within the request timeout.
func (k *Keyspace) boundedResolve(ctx context.Context, op string) (*route.Keyspace, error) {
	ctx, cancel := k.client.bound(ctx)
	defer cancel()
	return k.resolve(ctx, op)
}

// scan is one running Scan. Only the goroutine of the loop uses it; the fetching goroutines use their feeds.
type scan struct {
	keyspace *Keyspace
	id       keys.KeyspaceID
	hashed   bool
	q        *query
	yield    func(Pair, error) bool

	// left: the loop was left. yielded: rows so far.
	left    bool
	yielded int

	// slots bounds the pages on their way in a merge.
	slots chan struct{}
	// fetching counts the goroutines.
	fetching sync.WaitGroup
}

func (s *scan) run(ctx context.Context) error {
	parts, err := s.keyspace.client.sender.PartitionsOf(ctx, s.id, s.q.span)
	if err != nil {
		return err
	}
	if s.q.hasAt {
		return s.read(ctx, parts, exactly(s.q.at))
	}
	if len(parts) == 1 || (!s.hashed && s.q.limit > 0 && s.q.limit <= maxRows) {
		done, err := s.firstPartition(ctx, len(parts) == 1)
		if done || err != nil {
			return err
		}
	}
	return s.keyspace.consistent(ctx, s.id, s.q.span, func() bool { return s.yielded == 0 },
		func(parts []*route.Partition, snap *snapshot) error {
			if !s.hashed {
				if err := s.keyspace.prove(ctx, s.id, parts, snap, s.q.reverse); err != nil {
					return err
				}
			}
			return s.read(ctx, parts, snap)
		})
}

// firstPartition reads with the moment that the first partition's leader chooses. If that turns out to be all that is needed, or
// the scan has only one partition, it goes on from there and done is true; nothing was yielded otherwise.
func (s *scan) firstPartition(ctx context.Context, only bool) (done bool, err error) {
	t := s.track(0)
	if only && s.hashed {
		t.hash = 0
	}
	first, err := t.scanPage(ctx, nil, s.q.keysOnly, s.rows(1), s.bytes(1))
	if err != nil {
		return false, err
	}
	// The table may have been old: a partition that was split holds less than was thought.
	only = only && (s.hashed || first.answer.Partition.Span.ContainsSpan(s.q.span))
	enough := (t.over && only) || (s.q.limit > 0 && len(first.pairs) >= s.q.limit)
	if !only && !enough {
		return false, nil
	}
	if enough {
		for _, p := range first.pairs {
			if !s.emit(pairOf(p)) {
				break
			}
		}
		return true, nil
	}
	f := &feed{scan: s, track: t, snapshot: exactly(first.at), rows: s.rows(1), share: 1, pairs: first.pairs}
	return true, s.sequential(ctx, f)
}

// track is what the scan reads, or its part in one hash partition.
func (s *scan) track(hash uint32) *track {
	return &track{keyspace: s.keyspace, id: s.id, hashed: s.hashed, hash: hash, reverse: s.q.reverse, rest: s.q.span}
}

// rows is the first page's size when so many feeds share the scan.
func (s *scan) rows(share int) int {
	rows := firstRows
	if s.q.limit > 0 {
		// A little more than the fair share, so that most feeds need no second page.
		rows = s.q.limit
		if share > 1 {
			rows = min(rows, s.q.limit/share+s.q.limit/(2*share)+8)
		}
		rows = min(rows, maxRows)
	} else if share > 1 {
		rows = firstRows / 4
	}
	if s.q.pageSize > 0 {
		rows = min(rows, s.q.pageSize)
	}
	return rows
}

// bytes is the greatest page when so many feeds share the scan: each may have one in hand and one on its way.
func (s *scan) bytes(share int) int { return min(maxPageBytes, scanBytes/2/share) }

// read yields everything at the snapshot.
func (s *scan) read(ctx context.Context, parts []*route.Partition, snap *snapshot) error {
	if s.hashed && len(parts) > 1 {
		return s.merge(ctx, parts, snap)
	}
	f := &feed{scan: s, track: s.track(0), snapshot: snap, share: 1}
	if s.hashed {
		f.track.hash = parts[0].Hash
	}
	return s.sequential(ctx, f)
}

// sequential yields one feed.
func (s *scan) sequential(ctx context.Context, f *feed) error {
	for {
		head, err := f.head(ctx)
		if err != nil || head == nil {
			return err
		}
		f.pop(ctx)
		if !s.emit(pairOf(head)) {
			return nil
		}
	}
}

// emit yields a pair; false means that the scan is over.
func (s *scan) emit(p Pair) bool {
	s.yielded++
	if !s.yield(p, nil) {
		s.left = true
		return false
	}
	return s.q.limit == 0 || s.yielded < s.q.limit
}
