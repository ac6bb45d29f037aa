package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/target"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// DefaultPieceBytes is the approximate size of the records of a piece before compression.
const DefaultPieceBytes = 24 << 20

// yieldBytes and yieldAfter are how much is read, and for how long, between two pauses.
const (
	yieldBytes = 1 << 20
	yieldAfter = 50 * time.Millisecond
)

// Config has the dependencies and limits of a Worker. Source and Target must be set.
type Config struct {
	Source Source
	Target target.Target
	// Recipients can read the pieces. If there are none, the pieces are not encrypted.
	Recipients archive.Recipients
	// Rate limits the bytes of records that are read per second. nil means no limit. Several workers
	// may share a limiter.
	Rate *rate.Limiter
	// PieceBytes is the size of a piece before compression. The default is DefaultPieceBytes.
	PieceBytes int
	// Random returns a random number that names an attempt. It is called once for each unit.
	Random func() uint64
	// Pause is called after some pages with the time that they took. It waits, to leave capacity to
	// requests of clients. nil means no pause.
	Pause func(ctx context.Context, took time.Duration) error
	// Progress is called with the number of records and bytes that were read since its last call. It
	// may be nil.
	Progress func(records, bytes uint64)
}

// Unit describes a unit that a Worker writes.
type Unit struct {
	// Backup is the id of the backup. Kind is the kind of the backup. Number is the number of the unit
	// in the plan.
	Backup string
	Kind   manifest.Kind
	Number int
	// Keyspace is the name of the keyspace.
	Keyspace string
	Query
}

// Worker writes units.
type Worker struct{ config Config }

// spaces has the memory of pieces that are written, for the next pieces.
var spaces sync.Pool

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

// Write writes the pieces of a unit and returns their description. It does not create the object of
// the unit's Done. After an error, the target may have pieces that no Done names.
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

// Changes describes a part of a round of a log: the changes of some spans.
type Changes struct {
	// Log is the id of the log. Round is the After of the round.
	Log   string
	Round hlc.Timestamp
	// Of has the queries with the names of their keyspaces. Queries of one keyspace follow each other
	// in the order of their spans, and the spans do not overlap.
	Of []NamedQuery
}

// NamedQuery is a query and the name of its keyspace.
type NamedQuery struct {
	Query
	Name string
}

// WriteChanges writes pieces of a log and returns their description. The rows in the pieces begin
// with the id of the keyspace (manifest.LogRow). After an error, the target may have pieces that no
// round names.
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
	if err := p.flush(ctx); err != nil {
		return nil, err
	}
	return p.written, nil
}

// read reads all pages of a query and adds their records to the pieces.
func (w *Worker) read(ctx context.Context, query Query, keyspace string, p *pieces) error {
	read, worked := 0, time.Duration(0) // since the last pause
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
		if !page.Above.IsZero() { // newer versions of the last row follow, and must be in another piece
			if err := p.flush(ctx); err != nil {
				return err
			}
		}
		query.Span, query.Above = page.Rest, page.Above
		if read, worked = read+size, worked+time.Since(began); read < yieldBytes && worked < yieldAfter {
			if err := ctx.Err(); err != nil {
				return err
			}
			continue
		}
		if err := w.yield(ctx, read, worked); err != nil {
			return err
		}
		read, worked = 0, 0
	}
}

// yield waits for the rate limiter, and to leave capacity to other requests.
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

// pieces writes records into one piece after the other.
type pieces struct {
	worker *Worker
	// name returns the name of a piece from its number. All pieces have the same header. prefix is put
	// before each row.
	name   func(number int) string
	header archive.Header
	prefix []byte
	// written are the pieces that are already in the target.
	written []manifest.Piece
	// writer writes the current piece. It is nil between two pieces. row is a buffer for the current
	// row with its prefix.
	writer *archive.Writer
	piece  manifest.Piece
	row    []byte
	// space is the memory of the piece that was written last. The next piece uses it.
	space []byte
}

// close discards the current piece if it is not written.
func (p *pieces) close() {
	if p.writer != nil {
		p.writer.Close()
		p.writer = nil
	}
	if p.space != nil {
		spaces.Put(new(p.space))
		p.space = nil
	}
}

// add adds a record. If the current piece is large enough, add writes it first and begins another
// piece.
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

// begin begins a piece if there is no current piece.
func (p *pieces) begin() (err error) {
	if p.writer != nil {
		return nil
	}
	space := p.space
	p.space = nil
	if space == nil {
		if kept, ok := spaces.Get().(*[]byte); ok {
			space = *kept
		}
	}
	p.piece = manifest.Piece{Name: p.name(len(p.written))}
	p.writer, err = archive.NewWriter(p.header,
		archive.Options{Recipients: p.worker.config.Recipients, Space: space})
	return err
}

// flush writes the current piece if it has records.
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
