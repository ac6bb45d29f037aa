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

// How a read over several partitions, outside of a transaction, finds its moment.
//
// The moment M must be such that every write acknowledged before the read began lies at or below
// it. So before anything is read, the leader of each partition is asked for a timestamp that is
// late enough for the span there (range/replica/read/multiscan.go): above all that it has applied,
// and above the commits of the transactions that have locks in the span. M is the highest of these.
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
	// LeaderWait is how long a read of a range keyspace waits at its beginning for partitions
	// without a leader, which it may never get to.
	LeaderWait = 4 * time.Second
	// maxAsked is how many partitions of a range keyspace are asked for a moment; of more, none is.
	maxAsked = 1024
)

// Snapshot is a moment at which partitions are read. It may be used by several goroutines.
type Snapshot struct {
	at hlc.Timestamp
	// reading is the transaction, or View, that the moment belongs to; nil if it is of the read
	// alone. It knows what is uncertain.
	reading Reading
	// certain: nothing is uncertain in what is read.
	certain bool
	// movable: nothing was read yet, so the node that is asked first chooses the moment, or may
	// move it up.
	movable bool
}

// Reading is a transaction, or a View, that reads. Its methods may be called from any goroutine,
// but for ReadAt.
type Reading interface {
	// Context is what a read says to the node that leads a partition. movable: nothing was read yet,
	// so the node may move the moment up, or choose it. certain: nothing is uncertain in what is
	// read.
	Context(p *route.Partition, node keys.NodeID, movable, certain bool) *kvpb.ReadContext
	// Answered notes the clocks of the node that answered, and of the leader that admitted that.
	Answered(a route.Answer)
	// Heard notes what the clock of a node showed.
	Heard(node keys.NodeID, now *kvpb.Timestamp)
	// ReadAt takes in the moment at which a node has read, and returns the moment of the Reading.
	ReadAt(a route.Answer, at hlc.Timestamp, movable bool) (hlc.Timestamp, error)
}

// Of is a snapshot of a transaction, or View, at its moment. One that is movable is for one
// partition first; there is no other read at that time.
func Of(r Reading, at hlc.Timestamp, movable, certain bool) *Snapshot {
	return &Snapshot{at: at, reading: r, movable: movable && !certain, certain: certain}
}

// Exactly is a snapshot at a moment at which nothing is uncertain.
func Exactly(at hlc.Timestamp) *Snapshot { return &Snapshot{at: at} }

// moment is when it is; zero for nil: that is chosen by what answers.
func (s *Snapshot) moment() hlc.Timestamp {
	if s == nil {
		return hlc.Timestamp{}
	}
	return s.at
}

// context is what the transaction that reads says to leader l of a partition; nil if there is none.
func (s *Snapshot) context(p *route.Partition, l route.Leader) *kvpb.ReadContext {
	if s.reading == nil {
		return nil
	}
	return s.reading.Context(p, l.Node, s.movable, s.certain)
}

// answered notes which node answered a page, and at which moment that was read.
func (s *Snapshot) answered(a route.Answer, at hlc.Timestamp) error {
	if s.reading != nil {
		s.reading.Answered(a)
	}
	if s.movable {
		at, err := s.reading.ReadAt(a, at, true)
		if err != nil {
			return err
		}
		s.at, s.movable = at, false
	}
	return nil
}

// Moment finds a moment for reading a span, with the partitions that hold it now. heard is as in
// route.Sender.SnapshotTimestamp.
func (k Keyspace) Moment(ctx context.Context, span keys.Span,
	heard func(keys.NodeID, *kvpb.Timestamp)) (parts []*route.Partition, at hlc.Timestamp,
	err error) {
	ctx, cancel := k.Conn.Bound(ctx)
	defer cancel()
	s := k.Conn.Sender
	if parts, err = s.PartitionsOf(ctx, k.ID, span); err != nil || len(parts) == 0 {
		return nil, hlc.Timestamp{}, err
	}
	at, err = k.momentIn(ctx, parts, span, heard)
	return parts, at, err
}

// momentIn finds a moment for reading a span in partitions.
func (k Keyspace) momentIn(ctx context.Context, parts []*route.Partition,
	span keys.Span, heard func(keys.NodeID, *kvpb.Timestamp)) (at hlc.Timestamp, err error) {
	s := k.Conn.Sender
	ranged := !k.Hashed
	if ranged && len(parts) > maxAsked {
		return k.Conn.LateMoment(ctx)
	}
	inner, done := ctx, context.CancelFunc(func() {})
	if ranged && anyLed(parts) {
		inner, done = context.WithTimeout(ctx, LeaderWait)
	}
	defer done()
	at, rest, err := s.SnapshotTimestamp(inner, parts, span, heard)
	if err == nil {
		var late hlc.Timestamp
		late, err = k.momentOfEach(inner, rest, span)
		at = hlc.Max(at, late)
	}
	if err != nil && inner != ctx && inner.Err() != nil && ctx.Err() == nil {
		at, err = k.Conn.LateMoment(ctx)
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
func (k Keyspace) momentOfEach(ctx context.Context, parts []*route.Partition,
	span keys.Span) (at hlc.Timestamp, err error) {
	moments := make([]hlc.Timestamp, len(parts))
	err = conn.InParallel(ctx, len(parts), conn.ParallelRequests, func(ctx context.Context,
		i int) (err error) {
		moments[i], err = k.momentOf(ctx, parts[i], span)
		return err
	})
	for _, m := range moments {
		at = hlc.Max(at, m)
	}
	return at, err
}

// momentOf finds a moment for what one partition held. A read of the latest state tells one: it is
// of one row, and its moment is late enough for all of the span that it asked for.
func (k Keyspace) momentOf(ctx context.Context, p *route.Partition,
	span keys.Span) (at hlc.Timestamp, err error) {
	t := &Pager{keyspace: k, hash: p.Hash, rest: span.Intersect(p.Span)}
	for t.over = t.rest.Empty(); !t.over; {
		first, err := t.scanPage(ctx, nil, true, 1, 1)
		if err != nil {
			return hlc.Timestamp{}, err
		}
		at = hlc.Max(at, first.at)
		t.advance(first.answer.Partition, false, nil) // it may have been split since
	}
	return at, nil
}
