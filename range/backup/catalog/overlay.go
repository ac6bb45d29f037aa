package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// overlayBytes is the default limit on the keys and values of an overlay. A single row may be
// larger.
const overlayBytes = 64 << 20

// overlay is the source of the rounds of a log. It holds the newest version of each row of a span
// in memory.
type overlay struct {
	span    keys.Span
	records []archive.Record
}

// peek implements source.
func (o *overlay) peek() (archive.Record, bool) {
	if len(o.records) == 0 {
		return archive.Record{}, false
	}
	return o.records[0], true
}

// advance implements source.
func (o *overlay) advance() error {
	o.records = o.records[1:]
	return nil
}

// overlay reads the rounds of a point for a span of rows. If the span does not fit into the memory
// limit, the overlay covers only the first rows of the span.
func (c *Catalog) overlay(ctx context.Context, p *manifest.Point, keyspace uint32,
	span keys.Span) (*overlay, error) {
	g := &gathering{span: span, rows: make(map[string]archive.Record), limit: c.overlayBytes}
	for _, r := range p.Rounds {
		pieces, _ := r.Overlapping(keyspace, g.span)
		for i := range pieces {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			// The span may have become shorter: only its remaining rows are read.
			_, within := r.Overlapping(keyspace, g.span)
			reader, err := c.logPiece(ctx, r, &pieces[i])
			if err != nil {
				return nil, err
			}
			if err := g.read(reader, within, p); err != nil {
				return nil, fmt.Errorf("%s: %w", pieces[i].Name, err)
			}
		}
	}
	return g.finish(), nil
}

// gathering is an overlay while it is being built.
type gathering struct {
	span  keys.Span
	rows  map[string]archive.Record
	size  int
	limit int
}

// read adds the versions of a piece that are at or before the point's moment.
func (g *gathering) read(reader *archive.Reader, within keys.Span, p *manifest.Point) error {
	for {
		r, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if p.At.Less(r.Timestamp) || !within.Contains(r.Key) {
			continue
		}
		row := manifest.CutLogRow(r.Key)
		if !g.span.Contains(row) {
			continue
		}
		before, found := g.rows[string(row)]
		if found && r.Timestamp.LessEq(before.Timestamp) {
			continue
		}
		if found {
			g.size -= len(before.Key) + len(before.Value)
		}
		r.Key, r.Value = bytes.Clone(row), bytes.Clone(r.Value)
		g.rows[string(row)] = r
		if g.size += len(r.Key) + len(r.Value); g.size > g.limit && len(g.rows) > 1 {
			g.shorten()
		}
	}
}

// sorted returns the gathered rows in order.
func (g *gathering) sorted() []archive.Record {
	all := make([]archive.Record, 0, len(g.rows))
	for _, r := range g.rows {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b archive.Record) int { return bytes.Compare(a.Key, b.Key) })
	return all
}

// shorten drops the later half of the rows. The next overlay will read them.
func (g *gathering) shorten() {
	all := g.sorted()
	half := all[len(all)/2:]
	g.span.End = half[0].Key
	for _, r := range half {
		g.size -= len(r.Key) + len(r.Value)
		delete(g.rows, string(r.Key))
	}
}

// finish returns the overlay.
func (g *gathering) finish() *overlay {
	o := &overlay{span: g.span, records: g.sorted()}
	g.rows = nil
	return o
}
