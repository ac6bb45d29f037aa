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
// The read timestamp T must be such that (a) every write acknowledged before the read began has a timestamp at or below T,
// and (b) all partitions are read at T. For (a) the client asks all nodes that lead a partition concerned for their
// clocks, in parallel, and takes the maximum with its session: a leader's clock is at or above every timestamp that the leader
// has given out.
//
// That is sound for a partition if the node that was asked was indeed its leader at that moment, and if what earlier leaders
// wrote is not above the node's clock. So a partition is read exactly at T if
//
//   - its leader, node and term, had been known to this client for at least the maximum clock offset when the clocks were
//     asked: then whatever an earlier leader gave out lies below this leader's clock by now; and
//   - the first page is answered by that node in that term, which shows that nobody else has led the partition meanwhile. Once
//     this is shown, later pages may come from any leader.
//
// Otherwise it is read with an uncertainty interval (T, T + maximum offset]: where the node meets a version inside, it
// cannot be told whether that was acknowledged before the read began, and the node refuses with UNCERTAIN. As long as
// nothing was yielded, the read then begins anew at a later T. A read that is about to take long (more than its first
// pages) while a leader is known too freshly waits out the rest of the offset and begins anew as well, so that
// uncertainty cannot end it halfway under concurrent writes. What remains is a leader that changes between the beginning
// of a scan of a range keyspace and its first page from that partition: ErrSnapshotUncertain.

// clockWait is how long an unreachable leader's clock is waited for; the uncertainty interval covers for it.
const clockWait = 300 * time.Millisecond

// errYoung asks for a new beginning, once all leaders have been known for long enough.
var errYoung = errors.New("a leader is known too freshly")

// maxYoungRestarts bounds the new beginnings of that kind; after them the read goes on with uncertainty intervals.
const maxYoungRestarts = 2

// snapshot is a moment at which partitions are read.
type snapshot struct {
	at Timestamp
	// exact: no partition has an uncertainty interval (the caller named the moment, or a linearisable first page did).
	exact bool
	// limit is the end of the uncertainty interval.
	limit Timestamp
	// pins are the leaders whose clock was asked, and old those of them that had been known for long enough.
	pins map[keys.PartitionID]pin
	// ripe is when all pins are old; zero if waiting does not help.
	ripe time.Time

	mu struct {
		sync.Mutex
		proved map[keys.PartitionID]bool
	}
}

type pin struct {
	node keys.NodeID
	term uint64
	old  bool
}

// exactly is a snapshot that a caller named.
func exactly(at Timestamp) *snapshot { return &snapshot{at: at, exact: true} }

// begin finds a moment for reading the partitions, at or above floor.
func (k *Keyspace) begin(ctx context.Context, id keys.KeyspaceID, parts []*route.Partition, floor Timestamp) (*snapshot, error) {
	s, offset := k.client.sender, k.client.cfg.maxClockOffset
	if err := k.findLeaders(ctx, id, parts); err != nil {
		return nil, err
	}
	for {
		began := time.Now()
		pins := make(map[keys.PartitionID]pin, len(parts))
		var ripe time.Time
		for _, p := range parts {
			if l, ok := p.Leader(); ok && l.Term != 0 {
				old := l.Since.Add(offset)
				pins[p.ID] = pin{node: l.Node, term: l.Term, old: !old.After(began)}
				if old.After(ripe) {
					ripe = old
				}
			}
		}
		clock, answered := s.Clocks(ctx, parts, clockWait)
		if err := ctx.Err(); err != nil {
			return nil, &route.Error{Cause: err, Message: "asking the nodes for their clocks"}
		}
		if len(answered) == 0 {
			// Every leader has just failed. Wait until the partitions have leaders again.
			if err := k.findLeaders(ctx, id, parts); err != nil {
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
		snap := &snapshot{at: at, limit: at.Add(offset), pins: pins, ripe: ripe}
		snap.mu.proved = make(map[keys.PartitionID]bool, len(parts))
		return snap, nil
	}
}

// findLeaders reads a little of every partition without a known leader: the answer says who leads it.
func (k *Keyspace) findLeaders(ctx context.Context, id keys.KeyspaceID, parts []*route.Partition) error {
	var leaderless []*route.Partition
	for _, p := range parts {
		if _, ok := p.Leader(); !ok {
			leaderless = append(leaderless, p)
		}
	}
	return inParallel(ctx, len(leaderless), parallelRequests, func(ctx context.Context, i int) error {
		p := leaderless[i]
		start := p.Span.Start
		if len(start) == 0 {
			start = []byte{0}
		}
		call := route.Call{
			Keyspace: id,
			By:       route.ByHash,
			Hash:     p.Hash,
			Request: &kvpb.Request{Command: &kvpb.Request_Count{Count: &kvpb.CountRequest{
				Start: start, End: keys.Next(start), MaxRows: 1,
			}}},
		}
		if p.Descriptor.PrefixLength == keys.KeyspacePrefixLength {
			call.By, call.Key = route.ByKey, start
		}
		_, err := k.client.sender.Do(ctx, &call)
		return err
	})
}

// young reports whether a new beginning at a later time would spare uncertainty intervals.
func (s *snapshot) young() bool {
	if s.exact {
		return false
	}
	for _, p := range s.pins {
		if !p.old {
			return true
		}
	}
	return false
}

// uncertainUntil is the end of the uncertainty interval for a read of the partition that is about to go to this leader; nil
// if there is none.
func (s *snapshot) uncertainUntil(p *route.Partition, l route.Leader) *kvpb.Timestamp {
	if s.exact || s.pinned(p.ID, l.Node, l.Term) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.proved[p.ID] {
		return nil
	}
	return toWire(s.limit)
}

func (s *snapshot) pinned(p keys.PartitionID, node keys.NodeID, term uint64) bool {
	pin, ok := s.pins[p]
	return ok && pin.old && pin.node == node && pin.term == term && term != 0
}

// answered notes where a page came from.
func (s *snapshot) answered(a route.Answer) {
	if s.exact || !s.pinned(a.Partition.ID, a.Node, a.Term) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.proved[a.Partition.ID] = true
}

// ripen waits until no pin is young.
func (k *Keyspace) ripen(ctx context.Context, s *snapshot) error {
	timer := time.NewTimer(max(0, time.Until(s.ripe)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return &route.Error{Cause: ctx.Err()}
	case <-k.client.sender.Done():
		return &route.Error{Cause: route.ErrClosed}
	}
}

// consistent calls read with one snapshot after the other until it succeeds without uncertainty, or fails otherwise. restart
// says whether it may begin anew; young, whether read may ask for that with errYoung.
func (k *Keyspace) consistent(ctx context.Context, id keys.KeyspaceID, span keys.Span, restart func() bool,
	read func(parts []*route.Partition, s *snapshot, mayAsk bool) error) error {
	var floor Timestamp
	for youngRestarts := 0; ; {
		parts, err := k.client.sender.PartitionsOf(ctx, id, span)
		if err != nil {
			return err
		}
		snap, err := k.boundedBegin(ctx, id, parts, floor)
		if err != nil {
			return err
		}
		err = read(parts, snap, snap.young() && youngRestarts < maxYoungRestarts)
		if err == nil || !restart() {
			return err
		}
		if errors.Is(err, errYoung) {
			youngRestarts++
			if err := k.ripen(ctx, snap); err != nil {
				return err
			}
		} else if ts, uncertain := isCode(err, kvpb.ErrorCode_UNCERTAIN); uncertain {
			floor = hlc.Max(floor, ts)
		} else {
			return err
		}
	}
}

// boundedBegin is begin within the request timeout.
func (k *Keyspace) boundedBegin(ctx context.Context, id keys.KeyspaceID, parts []*route.Partition, floor Timestamp) (*snapshot, error) {
	ctx, cancel := k.client.bound(ctx)
	defer cancel()
	return k.begin(ctx, id, parts, floor)
}
