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

// Snapshot is a timestamp at which partitions are read. It may be used by several goroutines.
type Snapshot struct {
	at hlc.Timestamp
	// reading is the transaction, or View, to which the timestamp belongs; nil if it belongs to
	// this read alone. It knows what is uncertain.
	reading Reading
	// certain is set if nothing is uncertain in what is read.
	certain bool
	// movable is set if nothing was read yet, so that the node that is asked first chooses the
	// timestamp, or may move it up.
	movable bool
}

// Reading is a transaction, or a View, that reads. Its methods may be called from any goroutine,
// except for ReadAt.
type Reading interface {
	// Context returns the context that a read sends to the node that leads a partition. movable is
	// set if nothing was read yet, so that the node may choose the timestamp or move it up;
	// certain, if nothing is uncertain in what is read.
	Context(p *route.Partition, node keys.NodeID, movable, certain bool) *kvpb.ReadContext
	// Answered notes the clocks of the node that answered, and of the leader that admitted the
	// read.
	Answered(a route.Answer)
	// Heard notes the clock of a node.
	Heard(node keys.NodeID, now *kvpb.Timestamp)
	// ReadAt takes the timestamp at which a node has read, and returns that of the Reading.
	ReadAt(a route.Answer, at hlc.Timestamp, movable bool) (hlc.Timestamp, error)
}

// Of returns a snapshot of a transaction, or View, at its timestamp. A movable snapshot is for one
// partition first; there is no other read at that time.
func Of(r Reading, at hlc.Timestamp, movable, certain bool) *Snapshot {
	return &Snapshot{at: at, reading: r, movable: movable && !certain, certain: certain}
}

// Exactly returns a snapshot at a timestamp at which nothing is uncertain.
func Exactly(at hlc.Timestamp) *Snapshot { return &Snapshot{at: at} }

// moment returns the timestamp; zero if s is nil: the node that answers chooses it.
func (s *Snapshot) timestamp() hlc.Timestamp {
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

// answered notes which node answered a page, and at which timestamp.
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

// Moment finds a timestamp for reading a span, and the partitions that hold the span now. heard is
// as in route.Sender.SnapshotTimestamp.
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

// momentIn finds a timestamp for reading a span in partitions.
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

// momentOfEach asks the present leader of each partition for a timestamp.
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

// momentOf finds a timestamp for what one partition held, by a read of one row of its latest state:
// the timestamp of that read is late enough for the whole span that it asked for.
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
