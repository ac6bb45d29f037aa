package kv

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// How a read over several partitions finds its moment.
//
// The read timestamp T must be such that every write acknowledged before the read began has a timestamp at or below T. So the
// client asks the nodes that lead the partitions for their clocks, all at once, and takes the maximum with its session:
// a leader's clock is at or above every timestamp that it has given out.
//
// That holds for a partition if the node that was asked did lead it. So the leader that was asked, node and term, is
// pinned, and the partition's first page must be answered by just that leader: as it still leads after the clocks were
// asked, nobody else had led before. Then the partition is proved. If another leader turns up first, the read begins anew.
//
// What is left is what the pinned leader has not given itself. Earlier leaders' writes can lie above its clock if that leads since
// less than twice the maximum offset: their clocks may have been one ahead of its own, and the first timestamps of a leader are one ahead
// of its clock. And at any time a transaction's commit timestamp can, for that comes from whichever of its partitions was at the highest:
// it may have been acknowledged before this one has heard of it. A read carries the uncertainty interval (T, T + twice the
// maximum offset]; the leader knows up to where others can have given timestamps, looks no further, and refuses with UNCERTAIN if it
// meets a version there. The read then begins anew, above that version.
//
// Once a partition is proved, a later leader may answer its further pages. It cannot tell what the pinned leader wrote
// after the read began from what was acknowledged before, so to it all of the interval is uncertain.
//
// A merge over hash partitions has all first pages before it yields anything, so it can always begin anew. A scan of a range
// keyspace proves the partitions beforehand, the nearest maxProved of them.

const (
	// clockWait is how long an unreachable leader's clock is waited for; its partitions are not pinned.
	clockWait = 300 * time.Millisecond
	// leaderWait is how long a scan of a range keyspace waits at its beginning for partitions without a leader, which it may
	// never get to.
	leaderWait = 4 * time.Second
	// maxProved is how many partitions of a range keyspace are proved at the beginning of a scan.
	maxProved = 256
	// restartPause comes before a new beginning.
	restartPause = 5 * time.Millisecond
)

// errUnpinned ends a read that is about to go to a leader whose clock was not asked.
var errUnpinned = errors.New("the leader of a partition changed as the read began")

// snapshot is a moment at which partitions are read. It may be used by several goroutines.
type snapshot struct {
	at Timestamp
	// exact: no partition is uncertain (the caller named the moment, or the one leader concerned chose it).
	exact bool
	// limit is the end of the uncertainty interval.
	limit Timestamp
	// pins are the leaders whose clock was asked.
	pins map[keys.PartitionID]pin
	// reading is the transaction, or View, that the moment belongs to; nil if it is of the read alone. It knows what is uncertain, so the
	// moment is exact as far as the rest is concerned.
	reading *reading
	// movable: nothing was read yet, so the node that is asked first chooses the moment, or may move it up.
	movable bool

	mu struct {
		sync.Mutex
		// proved are the partitions that were led by their pinned leaders after the clocks were asked. That holds for the span, in
		// internal keys, whatever partitions it is split into later.
		proved map[keys.PartitionID]keys.Span
	}
}

type pin struct {
	node keys.NodeID
	term uint64
}

// exactly is a snapshot at a moment that needs no proof.
func exactly(at Timestamp) *snapshot { return &snapshot{at: at, exact: true} }

// prepare is called before a page of partition p is asked of leader l. It returns the end of the uncertainty interval, nil if
// there is none; or errUnpinned.
func (s *snapshot) prepare(p *route.Partition, l route.Leader) (*kvpb.Timestamp, error) {
	if s.exact {
		return nil, nil
	}
	if !s.holds(p, l) && !s.isProved(p) {
		return nil, errUnpinned
	}
	return toWire(s.limit), nil
}

// holds says whether leader l of partition p may be asked as it is: the moment needs no proof, or l is pinned.
func (s *snapshot) holds(p *route.Partition, l route.Leader) bool {
	if s.exact {
		return true
	}
	pin, known := s.pins[p.ID]
	return known && pin.node == l.Node && pin.term == l.Term
}

// answeredBy notes that the partitions' pinned leaders answered a page.
func (s *snapshot) answeredBy(partitions []*route.Partition) {
	if s.exact {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range partitions {
		if _, before := s.mu.proved[p.ID]; !before {
			s.mu.proved[p.ID] = keys.PartitionSpan(p.Descriptor)
		}
	}
}

// isProved says that the partition is proved: by a page of its own, or of the partition that it was split off.
func (s *snapshot) isProved(p *route.Partition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	span := keys.PartitionSpan(p.Descriptor)
	if proved, ok := s.mu.proved[p.ID]; ok && proved.ContainsSpan(span) {
		return true
	}
	for _, proved := range s.mu.proved {
		if proved.ContainsSpan(span) {
			return true
		}
	}
	return false
}

// context is what the transaction that reads says to leader l of a partition; nil if there is none.
func (s *snapshot) context(p *route.Partition, l route.Leader) *kvpb.ReadContext {
	if s.reading == nil {
		return nil
	}
	return s.reading.context(p, l.Node, s.movable)
}

// answered notes who answered a page, and at which moment that was read.
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
	if s.exact {
		return nil
	}
	if pin, known := s.pins[a.Partition.ID]; known && pin.node == a.Node && pin.term == a.Term {
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, before := s.mu.proved[a.Partition.ID]; !before { // an earlier one holds for no less
			s.mu.proved[a.Partition.ID] = keys.PartitionSpan(a.Partition.Descriptor)
		}
	}
	return nil
}

// begin finds a moment for reading the partitions, at or above floor.
func (k *Keyspace) begin(ctx context.Context, id keys.KeyspaceID, parts []*route.Partition, floor Timestamp) (*snapshot, error) {
	s, ahead := k.client.sender, 2*k.client.maxClockOffset()
	for {
		if err := k.findLeaders(ctx, id, parts); err != nil {
			return nil, err
		}
		pins := make(map[keys.PartitionID]pin, len(parts))
		for _, p := range parts {
			if l, ok := p.Leader(); ok && l.Term != 0 {
				pins[p.ID] = pin{node: l.Node, term: l.Term}
			}
		}
		clock, answered, all := s.Clocks(ctx, parts, clockWait)
		if err := ctx.Err(); err != nil {
			return nil, &route.Error{Cause: err, Message: "asking the nodes for their clocks"}
		}
		if len(answered) == 0 || !all { // all leaders have just failed, or one will know in a moment what time it is, or hands over
			if err := k.client.pause(ctx, restartPause); err != nil {
				return nil, err
			}
			continue
		}
		for partition, p := range pins {
			if !answered[p.node] {
				delete(pins, partition)
			}
		}
		at := hlc.Max(hlc.Max(clock, floor), s.Session())
		snap := &snapshot{at: at, limit: at.Add(ahead), pins: pins}
		snap.mu.proved = make(map[keys.PartitionID]keys.Span, len(parts))
		return snap, nil
	}
}

// findLeaders reads a little of every partition without a known leader: the answer says who leads it. All partitions of a
// hash keyspace are needed, so they are waited for; of a range keyspace, some may never be.
func (k *Keyspace) findLeaders(ctx context.Context, id keys.KeyspaceID, parts []*route.Partition) error {
	var leaderless []*route.Partition
	for _, p := range parts {
		if l, ok := p.Leader(); !ok || l.Term == 0 {
			leaderless = append(leaderless, p)
		}
	}
	if len(leaderless) == 0 {
		return nil
	}
	optional := leaderless[0].Descriptor.PrefixLength == keys.KeyspacePrefixLength && len(leaderless) < len(parts)
	inner, cancel := ctx, context.CancelFunc(noCancel)
	if optional {
		inner, cancel = context.WithTimeout(ctx, leaderWait)
	}
	defer cancel()
	err := inParallel(inner, len(leaderless), parallelRequests, func(ctx context.Context, i int) error {
		return k.client.sender.FindLeader(ctx, leaderless[i])
	})
	if err != nil && optional && ctx.Err() == nil {
		return nil
	}
	return err
}

// prove reads a little of each partition from the pinned leaders, so that the scan need not begin anew later.
func (k *Keyspace) prove(ctx context.Context, id keys.KeyspaceID, parts []*route.Partition, s *snapshot, reverse bool) error {
	n := min(len(parts), maxProved)
	return inParallel(ctx, n, parallelRequests, func(ctx context.Context, i int) error {
		p := parts[i]
		if reverse {
			p = parts[len(parts)-1-i]
		}
		if _, pinned := s.pins[p.ID]; !pinned {
			if _, led := p.Leader(); led {
				return errUnpinned // its leader did not tell the time, or was found only now
			}
			return nil // the scan finds out if it gets there
		}
		start := p.Span.Start
		if len(start) == 0 {
			start = []byte{0}
		}
		t := &track{keyspace: k, id: id, rest: keys.Span{Start: start, End: keys.Next(start)}}
		_, _, answered, err := t.countPage(ctx, s)
		if err == nil && !answered.Span.ContainsSpan(p.Span) {
			return errUnpinned // it was split before the read began: begin anew with what there is now
		}
		return err
	})
}

// consistent calls read with one snapshot after the other, until one holds or mayRestart says that it is too late for another.
func (k *Keyspace) consistent(ctx context.Context, id keys.KeyspaceID, span keys.Span, mayRestart func() bool,
	read func(parts []*route.Partition, s *snapshot) error) error {
	var floor Timestamp
	// All beginnings together are bounded, the reading in between is so page by page.
	beginning, cancel := k.client.bound(ctx)
	defer cancel()
	for {
		parts, err := k.client.sender.PartitionsOf(beginning, id, span)
		if err != nil {
			return err
		}
		snap, err := k.begin(beginning, id, parts, floor)
		if err != nil {
			return err
		}
		err = read(parts, snap)
		if err == nil {
			return nil
		}
		ts, uncertain := isCode(err, kvpb.ErrorCode_UNCERTAIN)
		if !uncertain && !errors.Is(err, errUnpinned) {
			return err
		}
		if !mayRestart() {
			return &Error{Op: "scan", Keyspace: k.name, wraps: []error{ErrSnapshotUncertain, err}, Message: "the leader of a partition " +
				"changed while the scan ran, so its next rows could miss writes from before the scan began; scan again, or go on with a new scan"}
		}
		k.client.sender.ReadRestarted(uncertain)
		floor = hlc.Max(floor, ts)
		var stop *route.Error
		if errors.As(k.client.pause(beginning, restartPause), &stop) {
			stop.Message = "no moment for a consistent read was found: " + err.Error()
			return stop
		}
	}
}
