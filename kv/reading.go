package kv

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/kv/internal/reader"
	"github.com/tidemarkdb/tidemark/kv/internal/reads"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn/committer"
)

// This file chooses the timestamp at which a transaction, or a View, reads.
//
// If the first read is in one partition, the leader of the partition chooses the timestamp, and its
// answer has the timestamp. Otherwise the client uses the lower end of its estimate of the
// cluster's time. All further reads are at that timestamp too.
//
// Every write that was acknowledged before the first read has a timestamp at or below the
// uncertainty limit, which is fixed at the first read: the read timestamp, plus the error of the
// estimate, plus twice the maximum clock offset. (A leader's clock may be one offset ahead of the
// clock that gave the timestamp, and the first timestamps of a new leader another offset ahead of
// its clock.) A version between the timestamp and the limit may have been acknowledged before the
// first read. If possible, a node decides that by its own clock, with the reading that the
// transaction saw first. Otherwise the node refuses the read as uncertain. Then the timestamp is
// moved up to that version, provided that all data that was read so far is the same there
// (Committer.Refresh). If it is not, the transaction has to run again.

// reading is the state of the reads of a transaction or a View: their timestamp, and the keys and
// spans that were read. Only the fields under mu may be used by several goroutines at a time.
type reading struct {
	client *Client
	// id and begun belong to the transaction. They are not set in a View.
	id    []byte
	begun Timestamp
	// near is set if replicas serve reads that leaders admit (LinearizableFollower).
	near *reader.Near

	// at is the timestamp. It is zero before the first read.
	at Timestamp
	// moves counts the moves of the timestamp.
	moves int
	set   reads.Set
	// open has the running scans.
	open []*openScan

	mu struct {
		sync.Mutex
		// limit is the end of the uncertainty interval. Only the reader changes it. The goroutines that
		// fetch further pages read it.
		limit Timestamp
		// under has the leaderships under which keys were locked with volatile locks and read. It is nil
		// if there are none. The map is immutable.
		under map[keys.PartitionID]*kvpb.Leadership
		// observed has the clock of each node as it was first seen.
		observed map[keys.NodeID]*kvpb.Timestamp
		// contexts are contexts that were sent to nodes. They are sent again if nothing has changed.
		contexts []nodeContext
	}
}

// owns refuses a keyspace handle of another client: in this client's cluster, its name may belong
// to another keyspace, or to none.
func (r *reading) owns(op string, ks *Keyspace, key []byte) error {
	if ks.client == r.client {
		return nil
	}
	return invalid(op, ks.name, key,
		"the keyspace belongs to another client; take it from the client of the transaction or "+
			"snapshot, with Keyspace")
}

// openScan is the state of a running scan.
type openScan struct {
	keyspace *route.Keyspace
	// covered is the span that was read. It is valid if any is set.
	covered keys.Span
	any     bool
	// whole is the span that the scan reads if its loop runs to the end. endless is set if the scan
	// has no limit.
	whole   keys.Span
	endless bool
}

func (r *reading) unread() bool { return r.set.Empty() && len(r.open) == 0 }

// untouched reports whether nothing was read, apart from scans that have returned nothing yet.
func (r *reading) untouched() bool {
	return r.set.Empty() && !slices.ContainsFunc(r.open, func(s *openScan) bool { return s.any })
}

// nodeContext is the context that reads send to a node as long as nothing changes. It is immutable.
type nodeContext struct {
	node    keys.NodeID
	limit   Timestamp
	context *kvpb.ReadContext
}

// maxContexts limits the contexts that are kept.
const maxContexts = 16

// context returns the context that a read sends to the node that leads a partition. certain is set
// if nothing in the read data can be uncertain. It may be called from several goroutines.
func (r *reading) context(p *route.Partition, node keys.NodeID,
	movable, certain bool) *kvpb.ReadContext {
	r.mu.Lock()
	defer r.mu.Unlock()
	limit := r.mu.limit
	if certain {
		limit = Timestamp{}
	}
	plain := !movable && len(r.mu.under) == 0
	if plain {
		for i := range r.mu.contexts {
			if k := &r.mu.contexts[i]; k.node == node && k.limit == limit &&
				k.context.Observed == r.mu.observed[node] {
				return k.context
			}
		}
	}
	m := &struct {
		context kvpb.ReadContext
		limit   kvpb.Timestamp
	}{}
	c := &m.context
	if plain && len(r.mu.contexts) < maxContexts {
		r.mu.contexts = append(r.mu.contexts, nodeContext{node: node, limit: limit, context: c})
	}
	c.Observed, c.Movable = r.mu.observed[node], movable
	c.Transaction, c.Begun = r.id, toWire(r.begun)
	c.Leadership = r.mu.under[p.ID]
	if !limit.IsZero() {
		m.limit.Wall, m.limit.Logical = uint64(limit.Wall), limit.Logical
		c.UncertainUntil = &m.limit
	}
	return c
}

// readingRole adapts a reading to the interface of package reader.
type readingRole reading

// Context implements reader.Reading.
func (r *readingRole) Context(p *route.Partition, node keys.NodeID,
	movable, certain bool) *kvpb.ReadContext {
	return (*reading)(r).context(p, node, movable, certain)
}

// Answered implements reader.Reading.
func (r *readingRole) Answered(a route.Answer) { (*reading)(r).answered(a) }

// Heard implements reader.Reading.
func (r *readingRole) Heard(node keys.NodeID, now *kvpb.Timestamp) {
	(*reading)(r).heard(node, now)
}

// ReadAt implements reader.Reading.
func (r *readingRole) ReadAt(a route.Answer, at Timestamp, movable bool) (Timestamp, error) {
	err := (*reading)(r).readAt(a, at, movable)
	return r.at, err
}

// limitTo sets the end of the uncertainty interval.
func (r *reading) limitTo(limit Timestamp) {
	r.mu.Lock()
	r.mu.limit = limit
	r.mu.Unlock()
}

// limitAbove raises the end of the uncertainty interval to at, if it is lower.
func (r *reading) limitAbove(at Timestamp) {
	r.mu.Lock()
	r.mu.limit = hlc.Max(r.mu.limit, at)
	r.mu.Unlock()
}

// lockedUnder sets the leaderships. It keeps the map.
func (r *reading) lockedUnder(under map[keys.PartitionID]*kvpb.Leadership) {
	r.mu.Lock()
	r.mu.under = under
	r.mu.Unlock()
}

// leaderships returns the leaderships under which keys were locked with volatile locks and read.
func (r *reading) leaderships() map[keys.PartitionID]*kvpb.Leadership {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.under
}

// answered records the clocks of the node that answered, and of the leader that admitted the read.
// It may be called from several goroutines.
func (r *reading) answered(a route.Answer) {
	if m := a.Admitted; m != nil && m.Now != nil {
		r.heard(m.By.Node, m.Now)
	}
	if a.Now != nil && !a.ClockUntrusted {
		r.heard(a.Node, a.Now)
	}
}

// heard records the clock of a node. It may be called from several goroutines.
func (r *reading) heard(node keys.NodeID, now *kvpb.Timestamp) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.observed == nil {
		r.mu.observed = make(map[keys.NodeID]*kvpb.Timestamp)
	}
	if _, before := r.mu.observed[node]; !before {
		r.mu.observed[node] = now
	}
}

// begin chooses a timestamp if none is chosen.
func (r *reading) begin(ctx context.Context) error {
	if !r.at.IsZero() {
		return nil
	}
	at, latest, err := r.client.conn.Estimate(ctx)
	if err == nil {
		r.start(at, latest)
	}
	return err
}

// beginLate chooses a timestamp at which nothing is uncertain.
func (r *reading) beginLate(ctx context.Context) error {
	at, err := r.client.conn.LateTimestamp(ctx)
	if err != nil {
		return err
	}
	r.at = at
	r.limitTo(at)
	return nil
}

// beginIn chooses the timestamp of a View whose first read is of a span of several partitions, so
// that nothing in the span is uncertain. certain is false if that is not possible, because
// something was read before, or because the reading belongs to a transaction, whose own locks may
// be in the span.
func (r *reading) beginIn(ctx context.Context, k reader.Keyspace,
	span keys.Span) (certain bool, err error) {
	if r.id != nil || !r.at.IsZero() {
		return false, r.begin(ctx)
	}
	_, at, err := k.SnapshotTimestamp(ctx, span, r.heard)
	if err != nil {
		return false, err
	}
	r.start(at, at)
	return true, nil
}

// start sets the timestamp for the first time. latest is the highest possible reading of the clock
// that the timestamp came from.
func (r *reading) start(at, latest Timestamp) {
	r.at = at
	r.limitTo(latest.Add(2 * r.client.conn.MaxClockOffset()))
}

// again reports whether a failed read can be tried again, at a timestamp that has been moved.
// Otherwise it returns why the read failed.
func (r *reading) again(ctx context.Context, err error) error {
	if at, uncertain := isCode(err, kvpb.ErrorCode_UNCERTAIN); uncertain && r.at.Less(at) {
		return r.moveTo(ctx, at)
	}
	if _, future := isCode(err, kvpb.ErrorCode_TIMESTAMP_IN_FUTURE); future && r.untouched() {
		// The error of the estimate was too large.
		at, asked := r.client.conn.AskNow(ctx)
		if asked == nil && at.Less(r.at) {
			r.start(at, at)
			return nil
		}
	}
	return err
}

// moveTo moves the timestamp up. It returns committer.ErrConflict if data that was read has changed
// between the two timestamps.
func (r *reading) moveTo(ctx context.Context, to Timestamp) error {
	if to.LessEq(r.at) {
		return nil
	}
	if !r.unread() {
		// A lock proves nothing if its transaction was aborted meanwhile and others have written the key.
		// Reads at the new timestamp must be consistent with earlier ones, even if nothing is committed
		// in the end.
		reads := r.reads()
		reads.Keys, reads.Locked = append(reads.Keys, reads.Locked...), nil
		if err := r.client.conn.Committer.Refresh(ctx, r.id, r.begun, reads, to); err != nil {
			return err
		}
	}
	r.at = to
	r.limitAbove(to)
	r.moves++
	return nil
}

// reads returns all keys and spans that were read so far.
func (r *reading) reads() committer.Reads {
	out := r.set.All()
	out.At, out.Leaderships = r.at, r.leaderships()
	if len(out.Leaderships) > 0 {
		// The locks of the transaction prove nothing.
		out.Keys, out.Locked = append(out.Keys, out.Locked...), nil
	}
	for _, s := range r.open {
		if s.any {
			out.Spans = append(out.Spans,
				committer.Span{Keyspace: s.keyspace.ID, Hash: committer.AllPartitions, Span: s.covered})
		}
	}
	return out
}

// get reads one key.
func (r *reading) get(ctx context.Context, ks *route.Keyspace,
	key []byte) (*kvpb.GetResponse, error) {
	for {
		get := &kvpb.GetRequest{Key: key, At: toWire(r.at)}
		movable := r.unread()
		if !movable { // a failed scan may still be open and be the first read
			if err := r.begin(ctx); err != nil {
				return nil, err
			}
			get.At = toWire(r.at)
		}
		answer, err := r.near.Do(ctx, r.client.conn.Sender, &route.Call{
			Keyspace: ks.ID, Key: key, Slack: conn.LockSlack,
			Request: &kvpb.Request{Command: &kvpb.Request_Get{Get: get}},
			Prepare: route.PreparerFunc(func(p *route.Partition, l route.Leader) error {
				get.Context = r.context(p, l.Node, movable, false)
				return nil
			}),
		}, reader.Part{At: r.at})
		if err != nil {
			if err = r.again(ctx, err); err != nil {
				return nil, err
			}
			continue
		}
		r.answered(answer)
		got := answer.GetGet()
		if err := r.readAt(answer, fromWire(got.GetAt()), movable); err != nil {
			return nil, err
		}
		r.set.Key(ks, key, fromWire(got.Version))
		return got, nil
	}
}

// readAt processes the timestamp at which a node has read. If the read was movable, the node could
// choose the timestamp, or move it up.
func (r *reading) readAt(answer route.Answer, at Timestamp, movable bool) error {
	switch {
	case at.IsZero() || at.Less(r.at) || (!movable && at != r.at):
		return &route.Error{Partition: answer.Partition.ID, Node: answer.Node,
			Message: "the node read at another moment than it was asked to"}
	case r.at.IsZero():
		r.start(at, at)
	case r.at.Less(at):
		r.at = at
		r.limitAbove(at)
	}
	return nil
}

// batchGet reads many keys.
func (r *reading) batchGet(ctx context.Context, k *Keyspace, ks *route.Keyspace,
	userKeys [][]byte) ([]Pair, error) {
	pairs := make([]Pair, len(userKeys))
	if len(userKeys) == 0 {
		return pairs, nil
	}
	of, take, role := k.reader(ks), takeInto(pairs), (*readingRole)(r)
	for {
		groups, err := of.Groups(ctx, userKeys)
		first := err == nil && len(groups) == 1 && r.unread()
		if first {
			var large bool
			if large, err = of.ReadFirst(ctx, groups[0], r.at, role, r.near, take); large {
				first, groups = false, groups[0].Halve()
			}
		}
		if err == nil && !first {
			if err := r.begin(ctx); err != nil {
				return nil, err
			}
			err = of.ReadGroups(ctx, groups, r.at, role, r.near, take)
		}
		if errors.Is(err, reader.ErrElsewhere) {
			continue
		}
		if err != nil {
			if err = r.again(ctx, err); err != nil {
				return nil, err
			}
			continue
		}
		r.set.Pairs(ks, len(pairs), func(i int) ([]byte, Timestamp) {
			return pairs[i].Key, pairs[i].Version
		})
		return pairs, nil
	}
}

// snapshot converts the timestamp to the form for scans and counts. A movable snapshot is for the
// first read, of one partition, while there is no other read. A certain snapshot is for a span in
// which nothing is uncertain (beginIn).
func (r *reading) snapshot(ctx context.Context, movable, certain bool) (*reader.Snapshot, error) {
	if !movable {
		if err := r.begin(ctx); err != nil {
			return nil, err
		}
	}
	return reader.Of((*readingRole)(r), r.at, movable, certain), nil
}

// count counts the keys of a span.
func (r *reading) count(ctx context.Context, k *Keyspace, ks *route.Keyspace,
	q *query) (uint64, error) {
	of := k.reader(ks)
	c := &reader.Count{Keyspace: of, Query: q.Query, Near: r.near}
	certain := false
	for {
		parts, err := k.client.conn.Sender.PartitionsOf(ctx, ks.ID, q.Span)
		if err != nil {
			return 0, err
		}
		if len(parts) > 1 && !certain {
			if certain, err = r.beginIn(ctx, of, q.Span); err != nil {
				return 0, err
			}
		}
		snap, err := r.snapshot(ctx, len(parts) == 1 && r.unread(), certain)
		if err != nil {
			return 0, err
		}
		total, err := c.All(ctx, parts, snap)
		if err == nil {
			r.set.Span(ks, q.Span.Clone())
			return total, nil
		}
		if err = r.again(ctx, err); err != nil {
			return 0, err
		}
	}
}

// openAt begins a scan. close ends it and keeps a record of the span that it has read.
func (r *reading) openAt(ks *route.Keyspace, q *query) *openScan {
	s := &openScan{keyspace: ks, whole: q.Span, endless: q.Limit == 0}
	r.open = append(r.open, s)
	return s
}

func (r *reading) close(s *openScan) {
	r.open = slices.DeleteFunc(r.open, func(o *openScan) bool { return o == s })
	if s.any {
		r.set.Span(s.keyspace, s.covered)
	}
}
