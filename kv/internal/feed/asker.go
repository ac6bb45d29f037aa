package feed

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv/internal/changes"
	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/kv/internal/reader"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

const (
	// feedWait is how long, beyond the keyspace's lag, a replica waits until new changes of the
	// feed are resolved. After that the leader reads its latest state, which makes pending
	// transactions commit above it.
	feedWait = 5 * time.Second
	// feedTimeout bounds one request, including feedWait.
	feedTimeout = 20 * time.Second
	// feedHold bounds how long a replica holds a request.
	feedHold = 5 * time.Second
)

// Asker asks the partitions of a keyspace for changes. Its keys are a hash number, 0 in a range
// keyspace, followed by a user key. So each partition is a span. It implements changes.Asker.
type Asker struct {
	keyspace reader.Keyspace
	hashes   uint32
	// wait is how long a replica waits for new changes.
	wait time.Duration
	// span is a span of user keys.
	span keys.Span
}

// NewAsker makes an Asker for the changes of a span of user keys.
func NewAsker(c *conn.Conn, ks *route.Keyspace, span keys.Span) *Asker {
	return &Asker{keyspace: reader.Keyspace{Conn: c, ID: ks.ID, Hashed: ks.Hashed()},
		hashes: ks.Info.GetHashPartitions(), span: span,
		wait: feedWait + time.Duration(ks.Info.GetClosedTimestampLagMillis())*time.Millisecond}
}

// Spans returns the spans of the feed, in the Asker's keys.
func (a *Asker) Spans() (spans []keys.Span) {
	if !a.keyspace.Hashed {
		return []keys.Span{placed(0, a.span)}
	}
	for hash := range a.hashes {
		spans = append(spans, placed(hash, a.span))
	}
	return spans
}

// placed returns a span of the Asker's keys for user keys of a hash number.
func placed(hash uint32, span keys.Span) keys.Span {
	prefix := binary.BigEndian.AppendUint32(nil, hash)
	out := keys.Span{Start: append(bytes.Clone(prefix), span.Start...), End: keys.PrefixEnd(prefix)}
	if len(span.End) > 0 {
		out.End = append(bytes.Clone(prefix), span.End...)
	}
	return out
}

// unplaced is the reverse of placed, for a span within one hash number.
func unplaced(span keys.Span) (hash uint32, user keys.Span) {
	hash = binary.BigEndian.Uint32(span.Start)
	user.Start = span.Start[4:]
	if len(span.End) > 4 && binary.BigEndian.Uint32(span.End) == hash {
		user.End = span.End[4:]
	}
	return hash, user
}

// Partition implements changes.Asker.
func (a *Asker) Partition(key []byte) (keys.Span, bool, error) {
	ks := a.keyspace.Conn.Sender.Table().KeyspaceByID(a.keyspace.ID)
	if ks == nil {
		return keys.Span{}, false, &route.Error{Cause: route.ErrNoKeyspace}
	}
	var p *route.Partition
	if a.keyspace.Hashed {
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
func (a *Asker) Ask(ctx context.Context, q changes.Question) (changes.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, feedTimeout)
	defer cancel()
	hash, rest := unplaced(q.Span)
	t := reader.NewPager(a.keyspace, hash, rest)
	asked := &kvpb.ChangesRequest{After: wire.ToTimestamp(q.After), LimitBytes: uint32(q.Limit),
		IdleMicros: uint64(min(q.Idle, feedHold).Microseconds())}
	if !q.Head.IsZero() {
		asked.ResumeVersion = wire.ToTimestamp(q.Head)
	}
	near := &route.Near{Freshness: route.FreshFeed, AtLeast: q.After, Wait: a.wait}
	if !q.Upto.IsZero() {
		asked.Upto = wire.ToTimestamp(q.Upto)
		near.AtLeast, near.At = hlc.Timestamp{}, q.Upto
	}
	call := t.Call(&kvpb.Request{Command: &kvpb.Request_Changes{Changes: asked}},
		func(_ *route.Partition, _ route.Leader, span keys.Span) {
			asked.Start, asked.End = span.Start, span.End
		})
	answer, err := a.keyspace.Conn.Sender.DoNear(ctx, call, near)
	if err != nil {
		return changes.Answer{}, err
	}
	return a.answer(hash, rest, &q, answer)
}

// answer converts an answer, and returns an error if it is invalid.
func (a *Asker) answer(hash uint32, rest keys.Span, q *changes.Question,
	answer route.Answer) (changes.Answer, error) {
	r, p := answer.GetChanges(), answer.Partition
	out := changes.Answer{Partition: placed(hash, p.Span), Changes: r.GetChanges(),
		Resolved: wire.FromTimestamp(r.GetResolved()), More: r.GetMore()}
	wrong := func(what string) (changes.Answer, error) {
		return changes.Answer{}, &route.Error{Partition: p.ID, Node: answer.Node, Message: what}
	}
	if out.Resolved.Less(q.After) || !q.Upto.IsZero() && out.Resolved != q.Upto {
		return wrong("the node told the changes up to another timestamp than it was asked to")
	}
	span := rest.Intersect(p.Span)
	if out.More {
		resume, version := r.GetResume(), wire.FromTimestamp(r.GetResumeVersion())
		within := bytes.Equal(resume, rest.Start) && q.Head.Less(version)
		if !span.Contains(resume) || !within && !reader.LeadsOn(rest, false, resume) {
			return wrong("the node answered with a resume key that does not lead on: " +
				keys.Pretty(resume))
		}
		out.Resume, out.ResumeVersion = placed(hash, keys.Span{Start: resume}).Start, version
	}
	for _, c := range out.Changes {
		version := wire.FromTimestamp(c.GetVersion())
		if !span.Contains(c.GetKey()) || version.LessEq(q.After) || out.Resolved.Less(version) {
			return wrong("the node told of a change that it was not asked for, of the key " +
				keys.Pretty(c.GetKey()))
		}
	}
	return out, nil
}

// Final implements changes.Asker.
func (a *Asker) Final(err error) bool {
	var r *route.Error
	if !errors.As(err, &r) {
		return true
	}
	if r.Cause != nil {
		// A time-out may be temporary, so it is not final.
		return errors.Is(r.Cause, route.ErrClosed) || errors.Is(r.Cause, route.ErrNoKeyspace) ||
			errors.Is(r.Cause, route.ErrWrongCluster)
	}
	switch r.Code {
	case kvpb.ErrorCode_TIMESTAMP_TOO_OLD, kvpb.ErrorCode_INVALID_ARGUMENT,
		kvpb.ErrorCode_WRONG_CLUSTER, kvpb.ErrorCode_CORRUPTION,
		kvpb.ErrorCode_UNAUTHENTICATED, kvpb.ErrorCode_PERMISSION_DENIED:
		return true
	}
	return false
}
