package command

import (
	"bytes"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// Prepare acquires a transaction's locks, all of them or none; or commits it in one phase.
var Prepare = register((*kvpb.Request_Prepare)(nil), Command{
	Name:          "prepare",
	Way:           InQueue,
	Transactional: true,
	Body:          func(q *kvpb.Request) bool { return q.GetPrepare() != nil },
	Footprint:     prepareFootprint,
	Named: func(q *kvpb.Request) int64 {
		c := q.GetPrepare()
		return max(wall(c.GetAtLeast()), wall(c.GetOnePhase().GetReads().GetAt()))
	},
	Foreground: func(q *kvpb.Request) bool { return !q.GetPrepare().GetLowPriority() },
	// Spans of reads are validated by looking through the engine.
	Alone: func(q *kvpb.Request) bool {
		return len(q.GetPrepare().GetOnePhase().GetReads().GetSpans()) > 0
	},
	Hurried: func(q *kvpb.Request) bool {
		c := q.GetPrepare()
		return c.GetVolatile() || c.GetOnePhase().GetReads().GetLeadership() != nil
	},
	MayDoNothing: func(q *kvpb.Request) bool { return q.GetPrepare().GetOnePhase() != nil },
	CheckWrite:   checkPrepare,
})

// prepareFootprint is what is written, and what is read in the same step.
func prepareFootprint(q *kvpb.Request) (f Footprint) {
	c := q.GetPrepare()
	reads := c.GetOnePhase().GetReads()
	f.Many = make([][]byte, 0, len(c.Mutations)+len(reads.GetKeys()))
	for _, m := range c.Mutations {
		f.Many = append(f.Many, m.GetKey())
	}
	f.Many = append(f.Many, reads.GetKeys()...)
	f.Spans = append(append(f.Spans, reads.GetSpans()...), c.GetHoldSpans()...)
	return f
}

func checkPrepare(d *clusterpb.Partition, q *kvpb.Request) (w Writing, p *Problem) {
	c := q.GetPrepare()
	of, err := txn.ParseInfo(c.GetTransaction())
	if err != nil {
		return w, Invalid("prepare: %v", err)
	}
	w.Transaction = &Transaction{Info: of}
	if p := checkVolatile(c); p != nil {
		return w, p
	}
	if p := checkHoldSpans(d, c); p != nil {
		return w, p
	}
	for _, s := range c.GetHoldSpans() {
		w.Size += len(s.Start) + len(s.End) + LockOverhead
	}
	if p := checkReadMutations(c); p != nil {
		return w, p
	}
	if n := len(c.GetMutations()); n > MaxBatchOperations {
		return w, Invalid("a prepare has at most %d mutations, this one has %d", MaxBatchOperations, n)
	}
	seen := make(map[string]struct{}, len(c.GetMutations()))
	for _, m := range c.GetMutations() {
		if p := checkMutation(d, m, c); p != nil {
			return w, p
		}
		if _, twice := seen[text(m.GetKey())]; twice {
			return w, Invalid("key %s appears twice in a prepare", keys.Pretty(m.GetKey()))
		}
		seen[text(m.GetKey())] = struct{}{}
		w.Size += len(m.GetKey()) + len(m.GetValue()) + len(of.Anchor) + LockOverhead
	}
	if c.GetOnePhase() != nil {
		size, p := checkReadSet(d, c.GetOnePhase().GetReads())
		if p == nil {
			p = checkAnchor(d, of)
		}
		if p != nil {
			return w, p
		}
		w.Size += size
	}
	if w.Size > MaxBatchBytes {
		return w, Invalid("a prepare has at most %d bytes, this one has %d", MaxBatchBytes, w.Size)
	}
	return w, nil
}

func checkMutation(d *clusterpb.Partition, m *kvpb.Mutation, c *kvpb.PrepareRequest) *Problem {
	if p := checkKeyValue(d, m.GetKey(), m.GetValue()); p != nil {
		return p
	}
	switch m.GetKind() {
	case kvpb.Mutation_PUT:
	case kvpb.Mutation_DELETE, kvpb.Mutation_LOCK, kvpb.Mutation_UNLOCK:
		if len(m.GetValue()) > 0 {
			return Invalid("key %s: a %s has no value", keys.Pretty(m.GetKey()), m.GetKind())
		}
	default:
		return Invalid("key %s: unknown kind of mutation %d", keys.Pretty(m.GetKey()), m.GetKind())
	}
	if c.GetReturnValues() && m.GetKind() != kvpb.Mutation_LOCK {
		return Invalid("key %s: values are returned with LOCK mutations only", keys.Pretty(m.GetKey()))
	}
	return nil
}

// checkVolatile says what is wrong with a Prepare of volatile locks by itself.
func checkVolatile(c *kvpb.PrepareRequest) *Problem {
	if c.GetVolatile() && (!c.GetReturnValues() || c.GetOnePhase() != nil) {
		return Invalid("volatile locks are acquired by reads: with values, and not in one phase")
	}
	return nil
}

// checkHoldSpans says what is wrong with the spans that a Prepare is to hold by itself.
func checkHoldSpans(d *clusterpb.Partition, c *kvpb.PrepareRequest) *Problem {
	switch n := len(c.GetHoldSpans()); {
	case n == 0:
		return nil
	case n > MaxHoldSpans:
		return Invalid("a prepare holds at most %d spans, this one is to hold %d", MaxHoldSpans, n)
	case !c.GetVolatile() || len(c.GetMutations()) > 0:
		return Invalid("spans are held by volatile locks, without mutations in the same prepare")
	}
	for _, s := range c.GetHoldSpans() {
		if p := checkSpan(d, s.GetStart(), s.GetEnd()); p != nil {
			return p
		}
		if span := (keys.Span{Start: s.GetStart(), End: s.GetEnd()}); span.Empty() {
			return Invalid("the span %s that is to be held is empty", span)
		}
	}
	return nil
}

// checkReadMutations says what is wrong with what a Prepare says about reads by itself.
func checkReadMutations(c *kvpb.PrepareRequest) *Problem {
	at, l := rpc.FromTimestamp(c.GetReadAt()), c.GetLeadership()
	if l != nil && (at.IsZero() || l.Term == 0) {
		return Invalid("a prepare names a leadership without a term, or does not say when its " +
			"keys were read")
	}
	if !at.IsZero() && (c.GetOnePhase() != nil || c.GetReturnValues()) {
		return Invalid("a prepare that compares its keys with what was read has two phases, and " +
			"returns no values")
	}
	for _, m := range c.GetMutations() {
		switch {
		case !m.GetRead():
		case m.Kind != kvpb.Mutation_PUT && m.Kind != kvpb.Mutation_DELETE:
			return Invalid("key %s: only a PUT or a DELETE says that its key was read, not a %s",
				keys.Pretty(m.Key), m.Kind)
		case at.IsZero():
			return Invalid("key %s: it is not said when it was read", keys.Pretty(m.Key))
		}
	}
	return nil
}

// checkAnchor says whether this partition can coordinate a transaction. (In a hash keyspace it
// takes the hash for granted.)
func checkAnchor(d *clusterpb.Partition, of txn.Info) *Problem {
	if own := keys.KeyspaceID(d.GetKeyspace()); of.Keyspace != own {
		return Invalid("transaction %s is anchored in keyspace %s, partition %s is of keyspace %s",
			of.ID, of.Keyspace, keys.PartitionID(d.GetId()), own)
	}
	return checkKey(d, of.Anchor)
}

// What a Prepare of two phases looks up of its keys before the locks are acquired. What it finds of
// locks is given to it as a value: the keys whose lock stays as it is.

// WritesVersion says that a mutation is a write, and so of a transaction that commits.
func WritesVersion(m *kvpb.Mutation) bool {
	return m.Kind == kvpb.Mutation_PUT || m.Kind == kvpb.Mutation_DELETE
}

// PreparedAbove is what the prepared timestamp has to be above: ts, or more because of what is
// written. Or changed is a key that was written since the transaction has read it. kept are keys
// whose lock stays as it is; they are not compared.
func (e *Evaluation) PreparedAbove(c *kvpb.PrepareRequest, kept map[string]struct{},
	ts hlc.Timestamp) (above hlc.Timestamp, changed []byte, err error) {
	readAt := rpc.FromTimestamp(c.GetReadAt())
	for _, m := range c.GetMutations() {
		if m.Kind == kvpb.Mutation_UNLOCK {
			continue
		}
		prior, err := e.PriorOfBlind(m.Key)
		if err != nil {
			return ts, nil, err
		}
		if _, late := kept[text(m.Key)]; m.Read && !late && prior.Found &&
			readAt.Less(prior.Timestamp) {
			return ts, m.Key, nil
		}
		ts = hlc.Max(ts, prior.Timestamp.Next())
	}
	return ts, nil, nil
}

// PreparedValues reads the keys as they are, and says what the prepared timestamp has to be above.
// If the values are more than an answer may have, there is a problem, and nothing else.
func (e *Evaluation) PreparedValues(mutations []*kvpb.Mutation, ts hlc.Timestamp) (
	values []*kvpb.GetResponse, above hlc.Timestamp, problem *Problem, err error) {
	size := 0
	for i, m := range mutations {
		prior, err := e.Prior(m.Key)
		if err != nil {
			return nil, ts, nil, err
		}
		if prior.Live() {
			size += len(prior.Value)
		}
		if size > MaxBatchBytes {
			return nil, ts, Invalid("a prepare returns values of at most %d bytes, the first %d "+
				"of its %d keys have more; lock fewer keys at a time",
				MaxBatchBytes, i+1, len(mutations)), nil
		}
		e.HoldSeen(&prior)
		value := &kvpb.GetResponse{}
		if prior.Live() {
			value.Found, value.Value, value.Version = true, bytes.Clone(prior.Value),
				rpc.ToTimestamp(prior.Timestamp)
		}
		values = append(values, value)
		ts = hlc.Max(ts, prior.Timestamp.Next())
	}
	return values, ts, nil, nil
}

// A transaction that lies in one partition commits in one entry: its reads are validated, and its
// writes become versions without having been locks. Here stands what that takes of the state and
// the pending writes. The locks that it ends or waits for are the replica's.

// OnePhaseDuplicate looks for the version that an earlier attempt of a one-phase commit wrote. The
// versions carry the request's id, so the first key that is written tells, as that of a batch does.
func (e *Evaluation) OnePhaseDuplicate(c *kvpb.PrepareRequest) (Own, error) {
	for _, m := range c.GetMutations() {
		if !WritesVersion(m) {
			continue
		}
		p, err := e.PriorOfBlind(m.Key)
		if err != nil {
			return Own{}, err
		}
		own, err := e.Own(m.Key, &p)
		if err != nil || !own.Found {
			return Own{}, err
		}
		e.HoldFor(e.CommitWait, own.Timestamp)
		return own, nil
	}
	return Own{}, nil
}

// OnePhaseOps adds the versions that a one-phase commit writes.
func (e *Evaluation) OnePhaseOps(c *kvpb.PrepareRequest) error {
	for _, m := range c.GetMutations() {
		if !WritesVersion(m) {
			continue
		}
		p, err := e.PriorOfBlind(m.Key)
		if err != nil {
			return err
		}
		e.Ops = append(e.Ops, WriteOp{Key: m.Key, Value: m.Value,
			Tombstone: m.Kind == kvpb.Mutation_DELETE, WasLive: p.Live(), Prior: p.Timestamp})
	}
	return nil
}

// ValidateReads says why the reads are not good any more; nil if they are. Spans are looked for in
// the applied state alone: with them, no write is pending (Command.Alone).
func (e *Evaluation) ValidateReads(q *kvpb.Request, reads *kvpb.ReadSet,
	at hlc.Timestamp) (*kvpb.Response, error) {
	if len(reads.GetKeys())+len(reads.GetSpans()) == 0 {
		return nil, nil
	}
	if refusal := e.ReadsTooOld(q, at); refusal != nil {
		return refusal, nil
	}
	for _, key := range reads.GetKeys() {
		p, err := e.Prior(key)
		if err != nil {
			return nil, err
		}
		if p.Found && at.Less(p.Timestamp) {
			return e.Conflict(q, key, at), nil
		}
	}
	for _, span := range reads.GetSpans() {
		key, err := ChangedInSpan(e.State, InternalSpan(e.Descriptor, span.GetStart(),
			span.GetEnd()), at, hlc.MaxTimestamp)
		if err != nil {
			return nil, err
		}
		if key != nil {
			return e.Conflict(q, keys.UserKey(e.Descriptor, key), at), nil
		}
	}
	return nil, nil
}

// Conflict says that what a transaction read has changed, and counts it.
func (e *Evaluation) Conflict(q *kvpb.Request, key []byte, at hlc.Timestamp) *kvpb.Response {
	e.Coordination.Conflicts()
	return Changed(e.Descriptor, q, key, at)
}

// ReadsTooOld refuses reads of a moment from which not everything is kept any more: a tombstone may
// have been collected with all that it hid.
func (e *Evaluation) ReadsTooOld(q *kvpb.Request, at hlc.Timestamp) *kvpb.Response {
	threshold := e.Coordination.Threshold()
	if !at.Less(threshold) {
		return nil
	}
	return Refusing(Refuse(q, kvpb.ErrorCode_TIMESTAMP_TOO_OLD,
		"partition %s: what was read at %s cannot be validated any more, versions are kept since %s",
		e.ID(), at, threshold), at, threshold)
}

// OnePhaseResponse answers a one-phase commit.
func OnePhaseResponse(id uint64, ts hlc.Timestamp) *kvpb.Response {
	return &kvpb.Response{Id: id,
		Result: &kvpb.Response_Prepare{Prepare: &kvpb.PrepareResponse{Prepared: rpc.ToTimestamp(ts)}}}
}
