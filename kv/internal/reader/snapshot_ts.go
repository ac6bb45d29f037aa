package reader

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// How a read over several partitions, outside of a transaction, finds its timestamp.
//
// The timestamp M must be such that every write acknowledged before the read began lies at or below
// it. So before anything is read, the leader of each partition is asked for a timestamp that is
// late enough for the span there (range/replica/read/multiscan.go): at or above everything that it
// has applied, and above the commits of the transactions that have locks in the span. M is the
// highest of these. Each node is asked once, for all partitions that it leads.
//
// Then everything is read exactly at M, from whichever leader, page by page. Writes that are
// acknowledged after the read began may lie on either side of M; they are seen everywhere, or
// nowhere. So nothing is uncertain any more, and neither a change of leaders nor load can end the
// read. A scan announces M to the nodes before it yields anything, so that it does not see later
// writes.
//
// Some partitions of a range keyspace may have no leader at present, and a scan may never get to
// them; and a scan of very many partitions that may be left early should not ask all of them. In
// these cases the client takes a timestamp that is late enough for everything, which costs a wait
// (conn.Conn.LateMoment).

const (
	// announceWait is how long a scan waits at its beginning for nodes to hear of its timestamp.
	announceWait = 300 * time.Millisecond
	// LeaderWait is how long a read of a range keyspace waits at its beginning for partitions
	// without a leader, which it may never get to.
	LeaderWait = 4 * time.Second
	// maxAsked is the number of partitions of a range keyspace up to which they are asked for a
	// timestamp.
	maxAsked = 1024
)

// SnapshotTimestamp finds a timestamp for reading a span, and the partitions that hold the span
// now. heard is as in route.Sender.SnapshotTimestamp.
func (k Keyspace) SnapshotTimestamp(ctx context.Context, span keys.Span,
	heard func(keys.NodeID, *kvpb.Timestamp)) (parts []*route.Partition, at hlc.Timestamp,
	err error) {
	ctx, cancel := k.Conn.Bound(ctx)
	defer cancel()
	s := k.Conn.Sender
	if parts, err = s.PartitionsOf(ctx, k.ID, span); err != nil || len(parts) == 0 {
		return nil, hlc.Timestamp{}, err
	}
	at, err = k.snapshotIn(ctx, parts, span, heard)
	return parts, at, err
}

// snapshotIn finds a timestamp for reading a span in partitions.
func (k Keyspace) snapshotIn(ctx context.Context, parts []*route.Partition,
	span keys.Span, heard func(keys.NodeID, *kvpb.Timestamp)) (at hlc.Timestamp, err error) {
	s := k.Conn.Sender
	ranged := !k.Hashed
	if ranged && len(parts) > maxAsked {
		return k.Conn.LateTimestamp(ctx)
	}
	inner, done := ctx, context.CancelFunc(func() {})
	if ranged && anyLed(parts) {
		inner, done = context.WithTimeout(ctx, LeaderWait)
	}
	defer done()
	at, rest, err := s.SnapshotTimestamp(inner, parts, span, heard)
	if err == nil {
		var late hlc.Timestamp
		late, err = k.snapshotOfEach(inner, rest, span)
		at = hlc.Max(at, late)
	}
	if err != nil && inner != ctx && inner.Err() != nil && ctx.Err() == nil {
		at, err = k.Conn.LateTimestamp(ctx)
	}
	return hlc.Max(at, s.Clock.Session()), err
}

// anyLed says that a node is known to lead one of the partitions.
func anyLed(parts []*route.Partition) bool {
	for _, p := range parts {
		if _, led := p.Leader(); led {
			return true
		}
	}
	return false
}

// snapshotOfEach asks the present leader of each partition for a timestamp.
func (k Keyspace) snapshotOfEach(ctx context.Context, parts []*route.Partition,
	span keys.Span) (at hlc.Timestamp, err error) {
	moments := make([]hlc.Timestamp, len(parts))
	err = conn.InParallel(ctx, len(parts), conn.ParallelRequests, func(ctx context.Context,
		i int) (err error) {
		moments[i], err = k.snapshotOf(ctx, parts[i], span)
		return err
	})
	for _, m := range moments {
		at = hlc.Max(at, m)
	}
	return at, err
}

// snapshotOf finds a snapshot timestamp for one partition, by a read of one row of its latest
// state: the timestamp of that read is late enough for the whole span that it asked for.
func (k Keyspace) snapshotOf(ctx context.Context, p *route.Partition,
	span keys.Span) (at hlc.Timestamp, err error) {
	t := &Pager{keyspace: k, hash: p.Hash, rest: span.Intersect(p.Span)}
	for t.over = t.rest.Empty(); !t.over; {
		first, err := t.scanPage(ctx, nil, true, 1, 1)
		if err != nil {
			return hlc.Timestamp{}, err
		}
		at = hlc.Max(at, first.at)
		t.advance(first.answer.Partition, false, nil) // the partition may have been split since
	}
	return at, nil
}
