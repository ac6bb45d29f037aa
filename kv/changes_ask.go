package kv

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv/internal/changes"
	"github.com/tidemarkdb/tidemark/kv/internal/reader"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

const (
	// feedWait is how long a replica waits for something above what the feed has to be resolved,
	// beyond the keyspace's lag, before the leader is asked to read its latest, which has
	// transactions in the way commit above.
	feedWait = 5 * time.Second
	// feedTimeout bounds one question, feedWait and the rest included.
	feedTimeout = 20 * time.Second
	// feedHold bounds how long a replica holds a question.
	feedHold = 5 * time.Second
)

// partitionAsker asks the partitions of a keyspace for changes. Its keys are a hash number, 0 in a
// range keyspace, and a user key: so each partition is a span.
type partitionAsker struct {
	keyspace *Keyspace
	id       keys.KeyspaceID
	hashed   bool
	hashes   uint32
	// wait is how long a replica waits.
	wait time.Duration
	// span is of user keys.
	span keys.Span
}

func newPartitionAsker(k *Keyspace, ks *route.Keyspace, q *changesQuery) *partitionAsker {
	return &partitionAsker{keyspace: k, id: ks.ID, hashed: ks.Hashed(),
		hashes: ks.Info.GetHashPartitions(), span: q.Span,
		wait: feedWait + time.Duration(ks.Info.GetClosedTimestampLagMillis())*time.Millisecond}
}

// spans are the feed's keys.
func (a *partitionAsker) spans() (spans []keys.Span) {
	if !a.hashed {
		return []keys.Span{placed(0, a.span)}
	}
	for hash := range a.hashes {
		spans = append(spans, placed(hash, a.span))
	}
	return spans
}

// placed is a span of user keys of a hash number.
func placed(hash uint32, span keys.Span) keys.Span {
	prefix := binary.BigEndian.AppendUint32(nil, hash)
	out := keys.Span{Start: append(bytes.Clone(prefix), span.Start...), End: keys.PrefixEnd(prefix)}
	if len(span.End) > 0 {
		out.End = append(bytes.Clone(prefix), span.End...)
	}
	return out
}

// unplaced is the reverse of placed, for what lies within one hash number.
func unplaced(span keys.Span) (hash uint32, user keys.Span) {
	hash = binary.BigEndian.Uint32(span.Start)
	user.Start = span.Start[4:]
	if len(span.End) > 4 && binary.BigEndian.Uint32(span.End) == hash {
		user.End = span.End[4:]
	}
	return hash, user
}

// Partition implements changes.Asker.
func (a *partitionAsker) Partition(key []byte) (keys.Span, bool, error) {
	ks := a.keyspace.client.conn.Sender.Table().KeyspaceByID(a.id)
	if ks == nil {
		return keys.Span{}, false, &route.Error{Cause: route.ErrNoKeyspace}
	}
	var p *route.Partition
	if a.hashed {
		p = ks.ByHash(binary.BigEndian.Uint32(key), key[4:])
	} else {
		p = ks.ByKey(key[4:])
	}
	if p == nil {
		return keys.Span{}, false, nil
	}
	return placed(p.Hash, p.Span), true, nil
}

// Ask implements changes.Asker.
func (a *partitionAsker) Ask(ctx context.Context, q changes.Question) (changes.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, feedTimeout)
	defer cancel()
	hash, rest := unplaced(q.Span)
	t := reader.NewPager(reader.Keyspace{Conn: a.keyspace.client.conn, ID: a.id, Hashed: a.hashed},
		hash, rest)
	asked := &kvpb.ChangesRequest{After: toWire(q.After), LimitBytes: uint32(q.Limit),
		IdleMicros: uint64(min(q.Idle, feedHold).Microseconds())}
	if !q.Head.IsZero() {
		asked.ResumeVersion = toWire(q.Head)
	}
	near := &route.Near{Freshness: route.FreshFeed, AtLeast: q.After, Wait: a.wait}
	if !q.Upto.IsZero() {
		asked.Upto = toWire(q.Upto)
		near.AtLeast, near.At = hlc.Timestamp{}, q.Upto
	}
	call := t.Call(&kvpb.Request{Command: &kvpb.Request_Changes{Changes: asked}},
		func(_ *route.Partition, _ route.Leader, span keys.Span) {
			asked.Start, asked.End = span.Start, span.End
		})
	answer, err := a.keyspace.client.conn.Sender.DoNear(ctx, call, near)
	if err != nil {
		return changes.Answer{}, err
	}
	return a.answer(hash, rest, &q, answer)
}

// answer takes an answer for what it should be, or says what is wrong with it.
func (a *partitionAsker) answer(hash uint32, rest keys.Span, q *changes.Question,
	answer route.Answer) (changes.Answer, error) {
	r, p := answer.GetChanges(), answer.Partition
	out := changes.Answer{Partition: placed(hash, p.Span), Changes: r.GetChanges(),
		Resolved: fromWire(r.GetResolved()), More: r.GetMore()}
	wrong := func(what string) (changes.Answer, error) {
		return changes.Answer{}, &route.Error{Partition: p.ID, Node: answer.Node, Message: what}
	}
	if out.Resolved.Less(q.After) || !q.Upto.IsZero() && out.Resolved != q.Upto {
		return wrong("the node told the changes up to another timestamp than it was asked to")
	}
	span := rest.Intersect(p.Span)
	if out.More {
		resume, version := r.GetResume(), fromWire(r.GetResumeVersion())
		within := bytes.Equal(resume, rest.Start) && q.Head.Less(version)
		if !span.Contains(resume) || !within && !reader.LeadsOn(rest, false, resume) {
			return wrong("the node answered with a resume key that does not lead on: " +
				keys.Pretty(resume))
		}
		out.Resume, out.ResumeVersion = placed(hash, keys.Span{Start: resume}).Start, version
	}
	for _, c := range out.Changes {
		version := fromWire(c.GetVersion())
		if !span.Contains(c.GetKey()) || version.LessEq(q.After) || out.Resolved.Less(version) {
			return wrong("the node told of a change that it was not asked for, of the key " +
				keys.Pretty(c.GetKey()))
		}
	}
	return out, nil
}

// Final implements changes.Asker.
func (a *partitionAsker) Final(err error) bool {
	var r *route.Error
	if !errors.As(err, &r) {
		return true
	}
	if r.Cause != nil {
		return len(causes(r.Cause)) > 0 // and not that its time was over
	}
	switch r.Code {
	case kvpb.ErrorCode_TIMESTAMP_TOO_OLD, kvpb.ErrorCode_INVALID_ARGUMENT,
		kvpb.ErrorCode_WRONG_CLUSTER, kvpb.ErrorCode_CORRUPTION,
		kvpb.ErrorCode_UNAUTHENTICATED, kvpb.ErrorCode_PERMISSION_DENIED:
		return true
	}
	return false
}

// changesError says how a feed ended.
func changesError(op, keyspace string, err error) error {
	err = wrap(op, keyspace, nil, err)
	var e *Error
	if errors.As(err, &e) && errors.Is(err, ErrTimestampTooOld) && !e.Bound.IsZero() {
		e.Message = "the changes since " + e.Timestamp.String() + " are not all kept any more, but " +
			"those since " + e.Bound.String()
		e.Advice = "read the keyspace as of a later moment and go on from there, and give it a GC " +
			"window (--gc-window) that is longer than a consumer may be away"
	}
	return err
}
