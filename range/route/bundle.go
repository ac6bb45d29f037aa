package route

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route/nodes"
	"github.com/tidemarkdb/tidemark/range/route/table"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// MaxBundle is how many partitions one request may name.
const MaxBundle = 256

// ErrScattered means that partitions have to be asked one by one: the node that led them does not
// answer for them any more, or does not answer such requests.
var ErrScattered = errors.New("the partitions have to be asked one by one")

// Bundle is several partitions of one keyspace that one node leads, to be asked together.
// Immutable. It names the leaders that were known when it was made: what has changed since, the
// node refuses.
type Bundle struct {
	// Partitions are sorted by id.
	Partitions []*Partition
	// Node leads them.
	Node keys.NodeID

	leaders []*table.Hint
	node    *nodes.Node
}

// Bundles puts the partitions that one node leads together. Those that no node is known to lead, or
// of which only a part is theirs, are left over, and a bundle has at least so many partitions.
func (s *Sender) Bundles(partitions []*Partition,
	least int) (bundles []*Bundle, rest []*Partition) {
	var open []*Bundle
	for _, p := range partitions {
		l := p.Hints.Current()
		if !l.Usable() || l.Term == 0 || p.Clipped() {
			rest = append(rest, p)
			continue
		}
		i := slices.IndexFunc(open, func(b *Bundle) bool { return b.node == l.Node })
		if i < 0 {
			i = len(open)
			open = append(open, &Bundle{Node: l.Node.ID, node: l.Node})
		}
		b := open[i]
		b.Partitions, b.leaders = append(b.Partitions, p), append(b.leaders, l)
		if len(b.Partitions) == MaxBundle {
			bundles = append(bundles, b)
			open = slices.Delete(open, i, i+1)
		}
	}
	for _, b := range open {
		if len(b.Partitions) < least {
			rest = append(rest, b.Partitions...)
			continue
		}
		bundles = append(bundles, b)
	}
	for _, b := range bundles {
		b.sort()
	}
	return bundles, rest
}

// sort sorts by id. Partitions and leaders belong together.
func (b *Bundle) sort() {
	byID := func(x, y *Partition) int { return cmp.Compare(x.ID, y.ID) }
	if slices.IsSortedFunc(b.Partitions, byID) {
		return
	}
	leaders := make(map[keys.PartitionID]*table.Hint, len(b.leaders))
	for i, p := range b.Partitions {
		leaders[p.ID] = b.leaders[i]
	}
	slices.SortFunc(b.Partitions, byID)
	for i, p := range b.Partitions {
		b.leaders[i] = leaders[p.ID]
	}
}

// Without is the bundle without some of its partitions; nil if none is left.
func (b *Bundle) Without(partitions []*Partition) *Bundle {
	rest := &Bundle{Node: b.Node, node: b.node}
	for i, p := range b.Partitions {
		if !slices.Contains(partitions, p) {
			rest.Partitions, rest.leaders = append(rest.Partitions, p), append(rest.leaders, b.leaders[i])
		}
	}
	if len(rest.Partitions) == 0 {
		return nil
	}
	return rest
}

// Routes is what a request says about the partitions of the bundle.
func (b *Bundle) Routes() []*kvpb.PartitionRoute {
	routes := make([]*kvpb.PartitionRoute, len(b.Partitions))
	all := make([]kvpb.PartitionRoute, len(b.Partitions))
	for i, p := range b.Partitions {
		all[i].Partition, all[i].Generation, all[i].Term = uint64(p.ID), p.Generation, b.leaders[i].Term
		routes[i] = &all[i]
	}
	return routes
}

// Bundled is an answer for a bundle.
type Bundled struct {
	*kvpb.MergeScanResponse
	// Refused are the partitions of the bundle that were not read. What their refusals say has been
	// taken in.
	Refused []*Partition
	// Now is what the node's clock showed; nil if that is not to be relied on.
	Now *kvpb.Timestamp
}

// DoBundle brings a MergeScan, whose Partitions are the bundle's Routes, to the bundle's node. It
// repeats it while the node is overloaded. Its errors are ErrScattered and *Error.
func (s *Sender) DoBundle(ctx context.Context, b *Bundle,
	command *kvpb.MergeScanRequest) (bundled Bundled, err error) {
	if err := ctx.Err(); err != nil {
		return Bundled{}, &Error{Cause: err, Message: "the request was not sent"}
	}
	sequence := s.sequence.Add(1)
	a := attempt{sender: s, call: &Call{}, sequence: sequence, session: s.Clock.SessionOfRequest()}
	lane := b.node.Lanes[sequence%uint64(len(b.node.Lanes))]
	r := &kvpb.Request{Sequence: sequence, Session: a.session,
		Command: &kvpb.Request_MergeScan{MergeScan: command}}
	ctx, o := s.observe(ctx, r, 1)
	defer func() { o.end(err) }()
	deadline, hasDeadline := ctx.Deadline()
	for {
		if !b.leaders[0].Usable() {
			return Bundled{}, ErrScattered
		}
		left := nodes.Patience
		if hasDeadline {
			left = min(left, time.Until(deadline))
		}
		r.TimeoutMicros = uint64(max(1, left.Microseconds()))
		a.sent++
		response, err := lane.Do(ctx, r)
		if err != nil {
			return Bundled{}, a.bundleUnanswered(ctx, b, err)
		}
		e := response.Error
		if e == nil {
			return s.bundled(b, command.At, response)
		}
		a.noteAnswer(e, 0, b.Node)
		switch e.Code {
		case kvpb.ErrorCode_OVERLOADED, kvpb.ErrorCode_DEADLINE_EXCEEDED:
			if e.Cause == kvpb.ErrorCause_CAUSE_TOO_LARGE {
				break // each partition has less to say alone
			}
			if err := a.wait(ctx, *overloadedFor(e)); err != nil {
				return Bundled{}, err
			}
			continue
		case kvpb.ErrorCode_UNCERTAIN, kvpb.ErrorCode_TIMESTAMP_TOO_OLD,
			kvpb.ErrorCode_TIMESTAMP_IN_FUTURE:
			return Bundled{}, a.ended(nil)
		}
		return Bundled{}, ErrScattered
	}
}

// bundleUnanswered is how a request to a bundle ends that got no answer.
func (a *attempt) bundleUnanswered(ctx context.Context, b *Bundle, err error) error {
	var broken *client.ErrStreamBroken
	switch {
	case a.sender.life.Ended():
		return a.ended(ErrClosed)
	case !errors.As(err, &broken):
		a.noteWaiting(err, 0, b.Node)
		if cause := ctx.Err(); cause != nil {
			err = cause
		}
		return a.ended(err)
	case status.Code(broken.Cause) == codes.FailedPrecondition:
		a.note(kvpb.ErrorCode_UNKNOWN_ERROR, wire.Reason(broken.Cause), 0, b.Node)
		return a.ended(ErrWrongCluster)
	}
	// That voids the hints of all partitions that it leads.
	b.node.Suspect(b.leaders[0].Incarnation, broken.Cause)
	return ErrScattered
}

// bundled takes in an answer. at is when it was read; nil: nothing was.
func (s *Sender) bundled(b *Bundle, at *kvpb.Timestamp,
	response *kvpb.Response) (Bundled, error) {
	out := Bundled{MergeScanResponse: response.GetMergeScan()}
	if out.MergeScanResponse == nil {
		return Bundled{}, ErrScattered
	}
	if !response.ClockUntrusted {
		out.Now = response.Now
	}
	s.Clock.Read(at)
	for _, refusal := range out.MergeScanResponse.Refused {
		i, ok := slices.BinarySearchFunc(b.Partitions, keys.PartitionID(refusal.Partition),
			func(p *Partition, id keys.PartitionID) int {
				return cmp.Compare(p.ID, id)
			})
		if !ok {
			return Bundled{}, ErrScattered
		}
		out.Refused = append(out.Refused, b.Partitions[i])
		s.learnRefusal(b.Partitions[i], b.leaders[i], refusal.GetError())
	}
	return out, nil
}

// learnRefusal takes in what a partition's refusal says about where it is.
func (s *Sender) learnRefusal(p *Partition, l *table.Hint, e *kvpb.Error) {
	if e == nil {
		return
	}
	switch e.Code {
	case kvpb.ErrorCode_NOT_LEADER, kvpb.ErrorCode_NO_QUORUM, kvpb.ErrorCode_NODE_UNHEALTHY,
		kvpb.ErrorCode_PARTITION_NOT_FOUND,
		kvpb.ErrorCode_REPLICA_DAMAGED:
		s.learnLeader(p.Hints, l.Node, e)
		p.Hints.Drop(l, time.Now())
	default:
		s.learnLeader(p.Hints, l.Node, e)
	}
	s.known.LearnPartitions(e.Partitions)
}
