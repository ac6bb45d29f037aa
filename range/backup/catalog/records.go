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

// Records iterates over what could be read in a span of rows of a keyspace at the moment of the
// last layer, in the order of the rows. The keys of the records are rows. A record is valid until
// the next one. An error is the last thing that it yields.
func (c *Catalog) Records(ctx context.Context, layers manifest.Layers, ks *manifest.Keyspace,
	span keys.Span) iter.Seq2[archive.Record, error] {
	return func(yield func(archive.Record, error) bool) {
		lists, err := layers.Pieces(ks, span)
		if err != nil {
			yield(archive.Record{}, err)
			return
		}
		last := layers[len(layers)-1]
		merged := &merge{now: last.Head.At.Wall}
		for i, pieces := range lists {
			s := &stream{ctx: ctx, catalog: c, manifest: layers[len(layers)-1-i], pieces: pieces,
				span: span}
			if err := s.advance(); err != nil {
				yield(archive.Record{}, err)
				return
			}
			merged.streams = append(merged.streams, s)
		}
		for {
			r, ok, err := merged.next()
			if err != nil {
				yield(archive.Record{}, err)
				return
			}
			if !ok || !yield(r, nil) {
				return
			}
		}
	}
}

// stream has the newest version of each row of one layer, in the order of the rows.
type stream struct {
	ctx      context.Context
	catalog  *Catalog
	manifest *manifest.Manifest
	pieces   []manifest.Piece
	span     keys.Span
	reader   *archive.Reader
	// head is the next record; over is set when there is none. The head's key is the stream's own.
	head archive.Record
	over bool
	last []byte
}

// advance brings the next row into head.
func (s *stream) advance() error {
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
			var err error
			if s.reader, err = s.catalog.Piece(s.ctx, s.manifest, &s.pieces[0]); err != nil {
				return err
			}
			s.pieces = s.pieces[1:]
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

// merge merges streams, of which an earlier one hides the rows of later ones.
type merge struct {
	streams []*stream
	// now is the moment by which values have expired or not, as a wall time.
	now int64
	key []byte
}

// next returns the next row that has a value.
func (m *merge) next() (archive.Record, bool, error) {
	for {
		var best *stream
		for _, s := range m.streams {
			if !s.over && (best == nil || bytes.Compare(s.head.Key, best.head.Key) < 0) {
				best = s
			}
		}
		if best == nil {
			return archive.Record{}, false, nil
		}
		r := best.head
		m.key = append(m.key[:0], r.Key...)
		r.Key = m.key
		for _, s := range m.streams {
			if !s.over && bytes.Equal(s.head.Key, m.key) {
				if err := s.advance(); err != nil {
					return archive.Record{}, false, err
				}
			}
		}
		if r.Kind == archive.Value && (r.Expiry == 0 || r.Expiry > m.now) {
			return r, true, nil
		}
	}
}
