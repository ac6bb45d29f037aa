package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Records iterates over the rows of a span of a keyspace as they could be read at the point's
// moment, in the order of the rows. The keys of the records are rows (package manifest). A record
// is valid until the next one. If an error occurs, it is the last thing that the iterator yields.
func (c *Catalog) Records(ctx context.Context, p *manifest.Point, ks *manifest.Keyspace,
	span keys.Span) iter.Seq2[archive.Record, error] {
	return func(yield func(archive.Record, error) bool) {
		for rest := span; ; {
			over, err := c.overlay(ctx, p, ks.ID, rest)
			if err != nil {
				yield(archive.Record{}, err)
				return
			}
			if !c.part(ctx, p, ks, over, yield) || len(over.span.End) == 0 ||
				bytes.Equal(over.span.End, span.End) {
				return
			}
			rest.Start = over.span.End
		}
	}
}

// part yields the records of the span of an overlay. It returns false if the iteration is over.
func (c *Catalog) part(ctx context.Context, p *manifest.Point, ks *manifest.Keyspace, over *overlay,
	yield func(archive.Record, error) bool) bool {
	lists, err := p.Pieces(ks, over.span)
	if err != nil {
		yield(archive.Record{}, err)
		return false
	}
	merged := &merge{now: p.At.Wall, sources: []source{over}}
	for i, pieces := range lists {
		s := &stream{ctx: ctx, catalog: c, manifest: p.Layers[len(p.Layers)-1-i], pieces: pieces,
			span: over.span}
		if err := s.advance(); err != nil {
			yield(archive.Record{}, err)
			return false
		}
		merged.sources = append(merged.sources, s)
	}
	for {
		r, ok, err := merged.next()
		if err != nil {
			yield(archive.Record{}, err)
			return false
		}
		if !ok {
			return true
		}
		if !yield(r, nil) {
			return false
		}
	}
}

// source yields the newest version of each row of one layer, in the order of the rows.
type source interface {
	// peek returns the next version, which is valid until advance. It returns false if there is none.
	peek() (archive.Record, bool)
	advance() error
}

// stream is the source of one backup.
type stream struct {
	ctx      context.Context
	catalog  *Catalog
	manifest *manifest.Manifest
	pieces   []manifest.Piece
	span     keys.Span
	// reader reads the current piece. It is nil between pieces, and otherwise points into readers. The
	// other element of readers holds the memory of an earlier piece, and will read the next piece.
	reader  *archive.Reader
	readers [2]archive.Reader
	// head is the next record. over is set when there are no more records. The stream owns the key of
	// head.
	head archive.Record
	over bool
	last []byte
}

// peek implements source.
func (s *stream) peek() (archive.Record, bool) { return s.head, !s.over }

// advance implements source: it reads the next row into head. The value of the previous head stays
// valid until the next advance, because its reader is not reset before then.
func (s *stream) advance() error {
	next := &s.readers[0]
	if s.reader == next {
		next = &s.readers[1]
	}
	first := s.last == nil
	s.last = append(s.last[:0], s.head.Key...)
	for {
		if s.reader == nil {
			if len(s.pieces) == 0 {
				s.over = true
				return nil
			}
			if err := s.ctx.Err(); err != nil {
				return err
			}
			if err := s.catalog.Piece(s.ctx, s.manifest, &s.pieces[0], next); err != nil {
				return err
			}
			s.reader, s.pieces = next, s.pieces[1:]
		}
		r, err := s.reader.Next()
		if errors.Is(err, io.EOF) {
			s.reader = nil
			continue
		}
		if err != nil {
			return fmt.Errorf("backup %s: %w", s.manifest.Head.ID, err)
		}
		if !s.span.Contains(r.Key) || !first && bytes.Equal(r.Key, s.last) {
			continue
		}
		if !first && bytes.Compare(r.Key, s.last) < 0 {
			return fmt.Errorf("backup %s: %w: the row %s comes after %s", s.manifest.Head.ID,
				archive.ErrCorrupt, keys.Pretty(r.Key), keys.Pretty(s.last))
		}
		key := append(s.head.Key[:0], r.Key...)
		s.head = r
		s.head.Key = key
		return nil
	}
}

// merge merges sources. A row of an earlier source hides the same row of later sources.
type merge struct {
	sources []source
	// now is the wall time at which the expiry of values is judged.
	now int64
	key []byte
}

// next returns the next row that has a value.
func (m *merge) next() (archive.Record, bool, error) {
	for {
		var best archive.Record
		found := false
		for _, s := range m.sources {
			if r, ok := s.peek(); ok && (!found || bytes.Compare(r.Key, best.Key) < 0) {
				best, found = r, true
			}
		}
		if !found {
			return archive.Record{}, false, nil
		}
		m.key = append(m.key[:0], best.Key...)
		best.Key = m.key
		for _, s := range m.sources {
			if r, ok := s.peek(); ok && bytes.Equal(r.Key, m.key) {
				if err := s.advance(); err != nil {
					return archive.Record{}, false, err
				}
			}
		}
		if best.Kind == archive.Value && (best.Expiry == 0 || best.Expiry > m.now) {
			return best, true, nil
		}
	}
}
