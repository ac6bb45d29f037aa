package reader

import (
	"bytes"
	"context"
	"errors"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// bundle is a group of hash partitions with one leading node that are read together, in order, page
// by page: the node merges them. Partitions that the node refuses to read leave it. It is used by
// one goroutine at a time.
type bundle struct {
	keyspace Keyspace
	route    *route.Bundle
	routes   []*kvpb.PartitionRoute
	reverse  bool
	// rest is the span that has not been read yet, in every partition; over is set when nothing is
	// left.
	rest keys.Span
	over bool
}

func (s *Scan) bundle(b *route.Bundle) *bundle {
	return &bundle{keyspace: s.Keyspace, route: b, routes: b.Routes(), reverse: s.Query.Reverse,
		rest: s.Query.Span}
}

// scanPage reads the next page. left are the partitions that have left the bundle: they are not
// part of the page.
func (b *bundle) scanPage(ctx context.Context, snap *Snapshot, keysOnly bool,
	rows, size int) (pairs []wire.Row, left []*route.Partition, err error) {
	ctx, cancel := b.keyspace.Conn.Bound(ctx)
	defer cancel()
	command := &kvpb.MergeScanRequest{
		Partitions: b.routes, Start: b.rest.Start, End: b.rest.End, Reverse: b.reverse,
		KeysOnly: keysOnly,
		MaxRows:  uint32(rows), MaxBytes: uint32(size), At: wire.ToTimestamp(snap.at),
	}
	answer, err := b.keyspace.Conn.Sender.DoBundle(ctx, b.route, command)
	if errors.Is(err, route.ErrScattered) {
		b.over = true
		return nil, b.route.Partitions, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if snap.reading != nil && answer.Now != nil {
		snap.reading.Heard(b.route.Node, answer.Now)
	}
	if len(answer.Refused) > 0 {
		if b.route = b.route.Without(answer.Refused); b.route == nil {
			b.over = true
			return nil, answer.Refused, nil
		}
		b.routes = b.route.Routes()
	}
	if err := b.advance(answer.GetMore(), answer.GetResume()); err != nil {
		return nil, nil, err
	}
	if pairs, err = wire.DecodeRows(answer.GetRows()); err != nil {
		return nil, nil, &route.Error{Node: b.route.Node, Message: err.Error()}
	}
	return pairs, answer.Refused, nil
}

// advance moves past a page.
func (b *bundle) advance(more bool, resume []byte) error {
	if !more {
		b.over = true
		return nil
	}
	if !LeadsOn(b.rest, b.reverse, resume) {
		return &route.Error{Node: b.route.Node,
			Message: "the node answered with a resume key that does not lead on: " + keys.Pretty(resume)}
	}
	resume = bytes.Clone(resume) // it must not keep the page
	if b.reverse {
		b.rest.End = resume
	} else {
		b.rest.Start = resume
	}
	b.over = b.rest.Empty()
	return nil
}
