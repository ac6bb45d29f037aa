package command

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

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
