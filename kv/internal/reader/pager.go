package reader

import (
	"bytes"
	"context"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Pager reads a run of keys in order, page by page: a span of a hash number, or of a range
// keyspace, which may cross partitions. Each page comes from the partition that holds the next keys
// at that time, and ends at the end of that partition at the latest: so a split or a merge on the
// way neither repeats nor misses a key. A Pager is used by one goroutine at a time.
type Pager struct {
	keyspace Keyspace
	// hash is the number; 0 in a range keyspace.
	hash uint32
	// near is set if any replica may answer; admitted then says how a leader has admitted the pages
	// of one partition.
	near     *Near
	admitted route.Admitted
	reverse  bool
	// rest is the span that has not been read yet; over is set when nothing is left.
	rest keys.Span
	over bool
}

// Call routes a request to the partition of the next keys. clip gives each attempt's part of rest
// that lies in the partition.
func (t *Pager) Call(r *kvpb.Request,
	clip func(*route.Partition, route.Leader, keys.Span)) *route.Call {
	c := &route.Call{Keyspace: t.keyspace.ID, Request: r, By: route.ByKey, Hash: t.hash,
		Key:   t.rest.Start,
		Slack: conn.LockSlack}
	switch {
	case t.reverse:
		c.By, c.Key = route.Before, t.rest.End
	case t.keyspace.Hashed:
		c.By = route.ByHash
	}
	c.Prepare = route.PreparerFunc(func(p *route.Partition, l route.Leader) error {
		clip(p, l, t.rest.Intersect(p.Span))
		return nil
	})
	return c
}

// advance moves past a page that partition p answered.
func (t *Pager) advance(p *route.Partition, more bool, resume []byte) {
	resume = bytes.Clone(resume) // it must not keep the page
	switch {
	case more && t.reverse:
		t.rest.End = resume
	case more:
		t.rest.Start = resume
	case t.reverse:
		t.rest.End = p.Span.Start
		t.over = len(p.Span.Start) == 0
	default:
		t.rest.Start = p.Span.End
		t.over = len(p.Span.End) == 0
	}
	t.over = t.over || t.rest.Empty()
}

// doneTo moves to a key; empty: to the end.
func (t *Pager) doneTo(key []byte) {
	if len(key) == 0 {
		t.over = true
		return
	}
	if bytes.Compare(key, t.rest.Start) > 0 {
		t.rest.Start = bytes.Clone(key)
	}
	t.over = t.over || t.rest.Empty()
}

// page is a page of rows, as it came.
type page struct {
	pairs []wire.Row
	// at is the timestamp of the page; partition is the one that answered.
	at     hlc.Timestamp
	answer route.Answer
}

// scanPage reads the next page. With a nil snap the node chooses the timestamp.
func (t *Pager) scanPage(ctx context.Context, snap *Snapshot, keysOnly bool,
	rows, size int) (page, error) {
	ctx, cancel := t.keyspace.Conn.Bound(ctx)
	defer cancel()
	scan := &kvpb.ScanRequest{Reverse: t.reverse, KeysOnly: keysOnly, MaxRows: uint32(rows),
		MaxBytes: uint32(size)}
	if snap != nil {
		scan.At = wire.ToTimestamp(snap.at)
	}
	call := t.Call(&kvpb.Request{Command: &kvpb.Request_Scan{Scan: scan}},
		func(p *route.Partition, l route.Leader, span keys.Span) {
			scan.Start, scan.End = span.Start, span.End
			if snap != nil {
				scan.Context = snap.context(p, l)
			}
		})
	answer, err := t.near.Do(ctx, t.keyspace.Conn.Sender, call,
		Part{At: snap.timestamp(), admitted: &t.admitted})
	if err != nil {
		return page{}, err
	}
	r := answer.GetScan()
	if err := t.sane(answer, r.GetMore(), r.GetResume()); err != nil {
		return page{}, err
	}
	decoded, err := wire.DecodeRows(r.GetRows())
	if err != nil {
		return page{}, &route.Error{Partition: answer.Partition.ID, Node: answer.Node,
			Message: err.Error()}
	}
	if snap != nil {
		if err := snap.answered(answer, wire.FromTimestamp(r.GetAt())); err != nil {
			return page{}, err
		}
	}
	t.advance(answer.Partition, r.GetMore(), r.GetResume())
	return page{pairs: decoded, at: wire.FromTimestamp(r.GetAt()), answer: answer}, nil
}

// countPage counts the next keys. p is the partition that answered.
func (t *Pager) countPage(ctx context.Context,
	snap *Snapshot) (count uint64, at hlc.Timestamp, p *route.Partition, err error) {
	ctx, cancel := t.keyspace.Conn.Bound(ctx)
	defer cancel()
	command := &kvpb.CountRequest{}
	if snap != nil {
		command.At = wire.ToTimestamp(snap.at)
	}
	call := t.Call(&kvpb.Request{Command: &kvpb.Request_Count{Count: command}},
		func(p *route.Partition, l route.Leader, span keys.Span) {
			command.Start, command.End = span.Start, span.End
			if snap != nil {
				command.Context = snap.context(p, l)
			}
		})
	answer, err := t.near.Do(ctx, t.keyspace.Conn.Sender, call,
		Part{At: snap.timestamp(), admitted: &t.admitted})
	if err != nil {
		return 0, hlc.Timestamp{}, nil, err
	}
	r := answer.GetCount()
	if err := t.sane(answer, r.GetMore(), r.GetResume()); err != nil {
		return 0, hlc.Timestamp{}, nil, err
	}
	if snap != nil {
		if err := snap.answered(answer, wire.FromTimestamp(r.GetAt())); err != nil {
			return 0, hlc.Timestamp{}, nil, err
		}
	}
	t.advance(answer.Partition, r.GetMore(), r.GetResume())
	return r.GetCount(), wire.FromTimestamp(r.GetAt()), answer.Partition, nil
}

// sane guards against a resume key that does not advance, which would make a scan endless or wrong.
func (t *Pager) sane(a route.Answer, more bool, resume []byte) error {
	if !more {
		return nil
	}
	if LeadsOn(t.rest, t.reverse, resume) {
		return nil
	}
	return &route.Error{Partition: a.Partition.ID, Node: a.Node,
		Message: "the node answered with a resume key that does not lead on: " + keys.Pretty(resume)}
}

// LeadsOn reports whether a resume key advances within what is left to read.
func LeadsOn(rest keys.Span, reverse bool, resume []byte) bool {
	if len(resume) == 0 {
		return false
	}
	if reverse {
		return len(rest.End) == 0 || bytes.Compare(resume, rest.End) < 0
	}
	return bytes.Compare(resume, rest.Start) > 0
}

// NewPager makes a Pager of a span; hash is the number in a hash keyspace.
func NewPager(k Keyspace, hash uint32, rest keys.Span) *Pager {
	return &Pager{keyspace: k, hash: hash, rest: rest}
}
