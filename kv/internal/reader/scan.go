package reader

import (
	"context"
	"math"
	"sync"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

const (
	// scanBytes bounds the pages that one scan holds, those in hand and those on their way.
	scanBytes = 64 << 20
	// Pages grow from firstRows by pageGrowth up to MaxRows.
	firstRows  = 128
	pageGrowth = 4
	// MaxRows is how many rows a page has at most.
	MaxRows = 8192
	// maxPageBytes bounds a page, however few partitions share the scan.
	maxPageBytes = 4 << 20
)

// Scan is a running scan. Only the goroutine of the loop uses it; the fetching goroutines use their
// feeds. The caller sets the exported fields before Run.
type Scan struct {
	Keyspace Keyspace
	Query    Query
	// Yield takes a row, which is valid until it returns; false ends the scan.
	Yield func(*wire.Row) bool
	// Near is set if any replica may answer.
	Near *Near
	// Note, if set, is called before the first row with the timestamp that is read, the node that
	// answers if only one does, and whether that is the latest state.
	Note func(at hlc.Timestamp, node keys.NodeID, latest bool)

	// announced is closed when the nodes have heard of the timestamp; nil if they need not.
	announced chan struct{}
	// left is set if the loop was left; yielded counts rows.
	left    bool
	yielded int

	// total is the number of partitions, at most one for each hash number, that the scan reads in
	// parallel: they share its memory.
	total int
	// slots bounds the pages on their way in a merge; nil before its first pages are in hand, and
	// without a merge.
	slots chan struct{}
	// fetching counts the goroutines.
	fetching sync.WaitGroup
}

// Left reports whether the loop was left.
func (s *Scan) Left() bool { return s.left }

// Wait waits for the pages that are being fetched. The context of the scan has ended.
func (s *Scan) Wait() { s.fetching.Wait() }

func (s *Scan) note(at hlc.Timestamp, node keys.NodeID, latest bool) {
	if s.Note != nil {
		s.Note(at, node, latest)
	}
}

// Run finds a timestamp, unless the query has one, and yields all rows at it.
func (s *Scan) Run(ctx context.Context) error {
	s.total = 1
	parts, err := s.Keyspace.Conn.Sender.PartitionsOf(ctx, s.Keyspace.ID, s.Query.Span)
	if err != nil {
		return err
	}
	if s.Query.HasAt {
		s.note(s.Query.At, 0, false)
		return s.Read(ctx, parts, Exactly(s.Query.At))
	}
	if len(parts) == 1 || (!s.Keyspace.Hashed && s.Query.Limit > 0 && s.Query.Limit <= MaxRows) {
		done, err := s.firstPartition(ctx, parts[0].Hash, len(parts) == 1)
		if done || err != nil {
			return err
		}
	}
	if s.Near.Past() {
		return s.readNear(ctx, parts)
	}
	parts, at, err := s.Keyspace.SnapshotTimestamp(ctx, s.Query.Span, nil)
	if err != nil {
		return err
	}
	s.note(at, 0, true)
	s.announce(ctx, parts, at)
	return s.Read(ctx, parts, Exactly(at))
}

// readNear reads at a timestamp for which replicas can answer.
func (s *Scan) readNear(ctx context.Context, parts []*route.Partition) error {
	asked := parts
	if !s.Keyspace.Hashed && len(parts) > maxAsked {
		// The scan may never get to most partitions. Those that it reaches wait, or their leader
		// answers.
		if asked = parts[:1]; s.Query.Reverse {
			asked = parts[len(parts)-1:]
		}
	}
	at, err := s.Keyspace.nearSnapshot(ctx, asked, s.Query.Span, s.Near)
	if err != nil {
		return err
	}
	s.note(at, 0, false)
	return s.Read(ctx, parts, Exactly(at))
}

// announce tells the timestamp, while the first page is read, to all nodes that have not heard of
// it.
func (s *Scan) announce(ctx context.Context, parts []*route.Partition, at hlc.Timestamp) {
	s.announced = make(chan struct{})
	if s.Keyspace.Hashed { // first pages of all partitions come before the first row
		s.Keyspace.Conn.Sender.Clock.RaiseSession(at)
		close(s.announced)
		return
	}
	s.fetching.Go(func() {
		defer close(s.announced)
		s.Keyspace.Conn.Sender.Announce(ctx, parts, at, announceWait)
	})
}

// firstPartition reads at the timestamp that the first partition's leader chooses. If that page is
// enough, or the scan has only one partition, the scan continues from there and done is true;
// otherwise nothing was yielded.
func (s *Scan) firstPartition(ctx context.Context, hash uint32, only bool) (done bool, err error) {
	t := s.pager(hash)
	first, err := t.scanPage(ctx, nil, s.Query.KeysOnly, s.rows(1), s.bytes(1))
	if err != nil {
		return false, err
	}
	// The table may have been old: a partition that was split holds less than expected.
	only = only && first.answer.Partition.Span.ContainsSpan(s.Query.Span)
	enough := (t.over && only) || (s.Query.Limit > 0 && len(first.pairs) >= s.Query.Limit)
	if !only && !enough {
		return false, nil
	}
	s.note(first.at, first.answer.Node, !s.Near.Past())
	if enough {
		for i := range first.pairs {
			if !s.emit(&first.pairs[i]) {
				break
			}
		}
		return true, nil
	}
	f := &feed{scan: s, pager: t, snapshot: Exactly(first.at), rows: s.rows(1), parts: 1,
		pairs: first.pairs}
	return true, s.sequential(ctx, f)
}

// pager makes the pager of the scan, or of its part of one hash number.
func (s *Scan) pager(hash uint32) *Pager {
	return &Pager{keyspace: s.Keyspace, hash: hash, near: s.Near, reverse: s.Query.Reverse,
		rest: s.Query.Span}
}

// rows returns the size of the first page of a feed that reads parts partitions.
func (s *Scan) rows(parts int) int {
	var rows int
	switch {
	case s.Query.Limit > 0:
		rows = min(expectedRows(s.Query.Limit, parts, s.total), MaxRows)
	case s.total > 1:
		rows = min(firstRows/4*parts, firstRows*pageGrowth)
	default:
		rows = firstRows
	}
	if s.Query.PageSize > 0 {
		rows = min(rows, s.Query.PageSize)
	}
	return rows
}

// expectedRows estimates how many of the next `limit` rows of all partitions lie in some of them:
// enough to cover two and a half standard deviations, so that few feeds need a second page.
func expectedRows(limit, parts, total int) int {
	if parts >= total {
		return limit
	}
	mean, part := float64(limit)*float64(parts)/float64(total), float64(parts)/float64(total)
	return min(limit, int(math.Ceil(mean+2.5*math.Sqrt(mean*(1-part))))+1)
}

// bytes returns the greatest page of a feed that reads parts partitions: each feed may have one
// page in hand and one on its way.
func (s *Scan) bytes(parts int) int { return min(maxPageBytes, max(1, scanBytes/2/s.total*parts)) }

// Read yields everything at the snapshot.
func (s *Scan) Read(ctx context.Context, parts []*route.Partition, snap *Snapshot) error {
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
func (s *Scan) sequential(ctx context.Context, f *feed) error {
	for {
		head, err := f.head(ctx)
		if err != nil || head == nil {
			return err
		}
		f.pop(ctx)
		if !s.emit(head) {
			return nil
		}
	}
}

// emit yields a row; false means that the scan is over.
func (s *Scan) emit(row *wire.Row) bool {
	if s.yielded == 0 && s.announced != nil {
		<-s.announced // comes soon
	}
	s.yielded++
	if !s.Yield(row) {
		s.left = true
		return false
	}
	return s.Query.Limit == 0 || s.yielded < s.Query.Limit
}
