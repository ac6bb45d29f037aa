package kv

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// How a read over several partitions, outside of a transaction, finds its moment.
//
// The moment M must be such that every write acknowledged before the read began lies at or below
// it. So before anything is read, the leader of each partition is asked for a timestamp that is
// late enough for the span there (range/replica/moment.go): above all that it has applied, and
// above the commits of the transactions that have locks in the span. M is the highest of these.
// Each node is asked once, for all partitions that it leads.
//
// Then everything is read exactly at M, from whichever leader, page by page. What is acknowledged
// after the read began may lie on either side of M; it is seen everywhere, or nowhere. So nothing
// is uncertain any more, and neither a change of leaders nor the load can end the read. A scan
// announces M to the nodes before it yields anything, so that it does not see what is written after
// that.
//
// Some partitions of a range keyspace may have no leader for the moment, and a scan may never get
// to them; and of very many partitions a scan that is left early may not want to ask all. For these
// the client takes a moment that is late enough for everything, which costs it a wait
// (conn.Conn.LateMoment).

const (
	// announceWait is how long a scan waits at its beginning for nodes to hear of its moment.
	announceWait = 300 * time.Millisecond
	// leaderWait is how long a read of a range keyspace waits at its beginning for partitions
	// without a leader, which it may never get to.
	leaderWait = 4 * time.Second
	// maxAsked is how many partitions of a range keyspace are asked for a moment; of more, none is.
	maxAsked = 1024
)

// snapshot is a moment at which partitions are read. It may be used by several goroutines.
type snapshot struct {
	at Timestamp
	// reading is the transaction, or View, that the moment belongs to; nil if it is of the read
	// alone. It knows what is uncertain.
	reading *reading
	// certain: nothing is uncertain in what is read.
	certain bool
	// movable: nothing was read yet, so the node that is asked first chooses the moment, or may
	// move it up.
	movable bool
}

// exactly is a snapshot at a moment at which nothing is uncertain.
func exactly(at Timestamp) *snapshot { return &snapshot{at: at} }

// moment is when it is; zero for nil: that is chosen by what answers.
func (s *snapshot) moment() Timestamp {
	if s == nil {
		return Timestamp{}
	}
	return s.at
}

// context is what the transaction that reads says to leader l of a partition; nil if there is none.
func (s *snapshot) context(p *route.Partition, l route.Leader) *kvpb.ReadContext {
	if s.reading == nil {
		return nil
	}
	return s.reading.context(p, l.Node, s.movable, s.certain)
}

// answered notes which node answered a page, and at which moment that was read.
func (s *snapshot) answered(a route.Answer, at Timestamp) error {
	if s.reading != nil {
		s.reading.answered(a)
	}
	if s.movable {
		if err := s.reading.readAt(a, at, true); err != nil {
			return err
		}
		s.at, s.movable = s.reading.at, false
	}
	return nil
}

// moment finds a moment for reading a span, with the partitions that hold it now. heard is as in
// route.Sender.Moment.
func (k *Keyspace) moment(ctx context.Context, id keys.KeyspaceID, span keys.Span,
	heard func(keys.NodeID, *kvpb.Timestamp)) (parts []*route.Partition, at Timestamp, err error) {
	ctx, cancel := k.client.conn.Bound(ctx)
	defer cancel()
	s := k.client.conn.Sender
	if parts, err = s.PartitionsOf(ctx, id, span); err != nil || len(parts) == 0 {
		return nil, Timestamp{}, err
	}
	at, err = k.momentIn(ctx, id, parts, span, heard)
	return parts, at, err
}

// momentIn finds a moment for reading a span in partitions.
func (k *Keyspace) momentIn(ctx context.Context, id keys.KeyspaceID, parts []*route.Partition,
	span keys.Span, heard func(keys.NodeID, *kvpb.Timestamp)) (at Timestamp, err error) {
	s := k.client.conn.Sender
	ranged := parts[0].Descriptor.PrefixLength == keys.KeyspacePrefixLength
	if ranged && len(parts) > maxAsked {
		return k.client.conn.LateMoment(ctx)
	}
	inner, done := ctx, context.CancelFunc(func() {})
	if ranged && anyLed(parts) {
		inner, done = context.WithTimeout(ctx, leaderWait)
	}
	defer done()
	at, rest, err := s.SnapshotTimestamp(inner, parts, span, heard)
	if err == nil {
		var late Timestamp
		late, err = k.momentOfEach(inner, id, rest, span)
		at = hlc.Max(at, late)
	}
	if err != nil && inner != ctx && inner.Err() != nil && ctx.Err() == nil {
		at, err = k.client.conn.LateMoment(ctx)
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

// momentOfEach asks for a moment partition by partition, from their leaders of now.
func (k *Keyspace) momentOfEach(ctx context.Context, id keys.KeyspaceID, parts []*route.Partition,
	span keys.Span) (at Timestamp, err error) {
	moments := make([]Timestamp, len(parts))
	err = conn.InParallel(ctx, len(parts), conn.ParallelRequests, func(ctx context.Context,
		i int) (err error) {
		moments[i], err = k.momentOf(ctx, id, parts[i], span)
		return err
	})
	for _, m := range moments {
		at = hlc.Max(at, m)
	}
	return at, err
}

// momentOf finds a moment for what one partition held. A read of the latest state tells one: it is
// of one row, and its moment is late enough for all of the span that it asked for.
func (k *Keyspace) momentOf(ctx context.Context, id keys.KeyspaceID, p *route.Partition,
	span keys.Span) (at Timestamp, err error) {
	t := &pager{keyspace: k, id: id, hashed: p.Descriptor.PrefixLength != keys.KeyspacePrefixLength,
		hash: p.Hash, rest: span.Intersect(p.Span)}
	for t.over = t.rest.Empty(); !t.over; {
		first, err := t.scanPage(ctx, nil, true, 1, 1)
		if err != nil {
			return Timestamp{}, err
		}
		at = hlc.Max(at, first.at)
		t.advance(first.answer.Partition, false, nil) // it may have been split since
	}
	return at, nil
}
