package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/target"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// DefaultPieceBytes is how many bytes of records a piece has about, before compression.
const DefaultPieceBytes = 24 << 20

// Config is what a Worker needs. Source and Target must be set.
type Config struct {
	Source Source
	Target target.Target
	// Recipients can read what is written; none: everybody can.
	Recipients archive.Recipients
	// Rate bounds the bytes of records that are read in a second; nil: no bound. Workers may share
	// it.
	Rate *rate.Limiter
	// PieceBytes is the size of a piece before compression. Default DefaultPieceBytes.
	PieceBytes int
	// Random names the attempts. It is called once for each unit.
	Random func() uint64
	// Pause is called after each page, with the time that it took, to make way for requests; nil: no
	// pause.
	Pause func(ctx context.Context, took time.Duration) error
	// Progress is told how many records and bytes have been read since it was last told; nil: nobody
	// is.
	Progress func(records, bytes uint64)
}

// Unit is what a Worker writes.
type Unit struct {
	// Backup is the id of the backup, Kind its kind, Number the number of the unit in its plan.
	Backup string
	Kind   manifest.Kind
	Number int
	// Keyspace is the name of the keyspace.
	Keyspace string
	Query
}

// Worker writes units.
type Worker struct{ config Config }

// NewWorker makes a Worker.
func NewWorker(config Config) (*Worker, error) {
	if config.Source == nil || config.Target == nil || config.Random == nil {
		return nil, errors.New("backup export: Source, Target and Random must be set")
	}
	if config.PieceBytes <= 0 {
		config.PieceBytes = DefaultPieceBytes
	}
	if config.Progress == nil {
		config.Progress = func(uint64, uint64) {}
	}
	return &Worker{config: config}, nil
}

// Write writes the pieces of a unit and returns what they are. It does not create the object of the
// Done. After an error some pieces may be there, which nobody names.
func (w *Worker) Write(ctx context.Context, u Unit) (*manifest.Done, error) {
	attempt := w.config.Random()
	p := &pieces{worker: w,
		name: func(n int) string { return manifest.PieceName(u.Backup, u.Number, attempt, n) },
		header: archive.Header{Kind: string(u.Kind), Backup: u.Backup, Sequence: uint64(u.Number),
			KeyspaceID: uint32(u.Query.Keyspace), Keyspace: u.Keyspace, Start: u.Span.Start,
			End: u.Span.End, After: u.After, At: u.At}}
	defer p.close()
	if err := w.read(ctx, u.Query, u.Keyspace, p); err != nil {
		return nil, err
	}
	if err := p.flush(ctx); err != nil {
		return nil, err
	}
	return &manifest.Done{Unit: u.Number, Pieces: p.written}, nil
}

// Changes is what a Worker writes of a log: the changes of some spans.
type Changes struct {
	// Log is the id of the log, and Round the After of the round.
	Log   string
	Round hlc.Timestamp
	// Of are the spans, with the names of their keyspaces. Those of a keyspace follow each other in
	// order, and do not overlap.
	Of []NamedQuery
}

// NamedQuery is a query and the name of its keyspace.
type NamedQuery struct {
	Query
	Name string
}

// WriteChanges writes pieces of a log, and returns what they are. Their rows begin with the id of
// the keyspace (manifest.LogRow). After an error some pieces may be there, which nobody names.
func (w *Worker) WriteChanges(ctx context.Context, c Changes) ([]manifest.Piece, error) {
	attempt := w.config.Random()
	p := &pieces{worker: w, name: func(n int) string {
		return manifest.LogPieceName(c.Log, c.Round, attempt, n)
	}}
	defer p.close()
	for _, q := range c.Of {
		header := archive.Header{Kind: manifest.LogKind, Backup: c.Log, After: q.After, At: q.At}
		if header.After != p.header.After || header.At != p.header.At {
			if err := p.flush(ctx); err != nil {
				return nil, err
			}
			p.close()
			p.header = header
		}
		p.prefix = manifest.LogRow(uint32(q.Keyspace), nil)
		if err := w.read(ctx, q.Query, q.Name, p); err != nil {
			return nil, err
		}
	}
	return p.written, p.flush(ctx)
}

// read reads what a query asks for into pieces.
func (w *Worker) read(ctx context.Context, query Query, keyspace string, p *pieces) error {
	for {
		began := time.Now()
		page, err := w.config.Source.Page(ctx, query)
		if err != nil {
			return fmt.Errorf("reading %v of the keyspace %q: %w", query.Span, keyspace, err)
		}
		size := 0
		for _, r := range page.Records {
			size += len(r.Key) + len(r.Value)
			if err := p.add(ctx, keyspace, r); err != nil {
				return err
			}
		}
		w.config.Progress(uint64(len(page.Records)), uint64(size))
		if page.Over {
			return nil
		}
		switch order := bytes.Compare(page.Rest.Start, query.Span.Start); {
		case order < 0, order == 0 && page.Above.LessEq(query.Above):
			return fmt.Errorf("reading the keyspace %q does not lead on from %s", keyspace,
				keys.Pretty(query.Span.Start))
		}
		if !page.Above.IsZero() { // newer versions of the last row follow: not in the same piece
			if err := p.flush(ctx); err != nil {
				return err
			}
		}
		query.Span, query.Above = page.Rest, page.Above
		if err := w.yield(ctx, size, time.Since(began)); err != nil {
			return err
		}
	}
}

// yield waits as long as the rate and other requests ask for.
func (w *Worker) yield(ctx context.Context, size int, took time.Duration) error {
	if limit := w.config.Rate; limit != nil {
		for size > 0 {
			n := min(size, limit.Burst())
			if err := limit.WaitN(ctx, n); err != nil {
				return err
			}
			size -= n
		}
	}
	if w.config.Pause != nil {
		return w.config.Pause(ctx, took)
	}
	return ctx.Err()
}

// pieces writes records, one piece after the other.
type pieces struct {
	worker *Worker
	// name names a piece by its number. header is that of all pieces, and prefix begins their rows.
	name   func(number int) string
	header archive.Header
	prefix []byte
	// written are the pieces that are in the target.
	written []manifest.Piece
	// writer is nil between two pieces. row is the present one, with the prefix.
	writer *archive.Writer
	piece  manifest.Piece
	row    []byte
	// space has the piece that was written last, and gets the next one.
	space []byte
}

// close gives up the piece that is not written.
func (p *pieces) close() {
	if p.writer != nil {
		p.writer.Close()
		p.writer = nil
	}
}

// add adds a record; it begins another piece if the present one is large enough.
func (p *pieces) add(ctx context.Context, keyspace string, r archive.Record) error {
	if p.writer != nil && p.writer.Size() >= p.worker.config.PieceBytes {
		if err := p.flush(ctx); err != nil {
			return err
		}
	}
	if err := p.begin(); err != nil {
		return err
	}
	p.row = append(append(p.row[:0], p.prefix...), r.Key...)
	r.Key = p.row
	err := p.writer.Add(r)
	if errors.Is(err, archive.ErrFull) && p.piece.Records > 0 {
		if err := p.flush(ctx); err != nil {
			return err
		}
		if err := p.begin(); err != nil {
			return err
		}
		err = p.writer.Add(r)
	}
	if err != nil {
		return fmt.Errorf("the row %s of the keyspace %q: %w", keys.Pretty(r.Key), keyspace, err)
	}
	if p.piece.Records == 0 {
		p.piece.First = bytes.Clone(r.Key)
	}
	p.piece.Last = append(p.piece.Last[:0], r.Key...)
	p.piece.Records++
	p.piece.Bytes += uint64(len(r.Key) + len(r.Value))
	return nil
}

// begin begins a piece unless one is begun.
func (p *pieces) begin() (err error) {
	if p.writer != nil {
		return nil
	}
	p.piece = manifest.Piece{Name: p.name(len(p.written))}
	p.writer, err = archive.NewWriter(p.header,
		archive.Options{Recipients: p.worker.config.Recipients, Space: p.space})
	return err
}

// flush writes the present piece, if it has records.
func (p *pieces) flush(ctx context.Context) error {
	if p.writer == nil || p.piece.Records == 0 {
		return nil
	}
	data, sum, err := p.writer.Finish()
	p.writer, p.space = nil, nil
	if err != nil {
		return err
	}
	if err := p.worker.config.Target.Put(ctx, p.piece.Name, data); err != nil {
		return err
	}
	p.space = data
	p.piece.Size, p.piece.Sum = uint64(sum.Size), sum.SHA256
	p.written = append(p.written, p.piece)
	return nil
}
