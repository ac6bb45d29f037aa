package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

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
	p := &pieces{worker: w, unit: u, attempt: w.config.Random(),
		done: &manifest.Done{Unit: u.Number}}
	defer p.close()
	for query := u.Query; ; {
		began := time.Now()
		page, err := w.config.Source.Page(ctx, query)
		if err != nil {
			return nil, fmt.Errorf("reading %v of the keyspace %q: %w", query.Span, u.Keyspace, err)
		}
		size := 0
		for _, r := range page.Records {
			size += len(r.Key) + len(r.Value)
			if err := p.add(ctx, r); err != nil {
				return nil, err
			}
		}
		w.config.Progress(uint64(len(page.Records)), uint64(size))
		if page.Over {
			break
		}
		if bytes.Compare(page.Rest.Start, query.Span.Start) <= 0 {
			return nil, fmt.Errorf("reading the keyspace %q does not lead on from %s", u.Keyspace,
				keys.Pretty(query.Span.Start))
		}
		query.Span = page.Rest
		if err := w.yield(ctx, size, time.Since(began)); err != nil {
			return nil, err
		}
	}
	if err := p.flush(ctx); err != nil {
		return nil, err
	}
	return p.done, nil
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

// pieces writes the records of a unit, one piece after the other.
type pieces struct {
	worker  *Worker
	unit    Unit
	attempt uint64
	done    *manifest.Done
	// writer is nil between two pieces.
	writer *archive.Writer
	piece  manifest.Piece
}

func (p *pieces) close() {
	if p.writer != nil {
		p.writer.Close()
	}
}

// add adds a record; it begins another piece if the present one is large enough.
func (p *pieces) add(ctx context.Context, r archive.Record) error {
	if p.writer != nil && p.writer.Size() >= p.worker.config.PieceBytes {
		if err := p.flush(ctx); err != nil {
			return err
		}
	}
	if err := p.begin(); err != nil {
		return err
	}
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
		return fmt.Errorf("the row %s of the keyspace %q: %w", keys.Pretty(r.Key), p.unit.Keyspace, err)
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
	u := &p.unit
	number := len(p.done.Pieces)
	p.piece = manifest.Piece{Name: manifest.PieceName(u.Backup, u.Number, p.attempt, number)}
	p.writer, err = archive.NewWriter(archive.Header{Kind: string(u.Kind), Backup: u.Backup,
		Sequence: uint64(u.Number), KeyspaceID: uint32(u.Query.Keyspace), Keyspace: u.Keyspace,
		Start: u.Span.Start, End: u.Span.End, After: u.After, At: u.At},
		archive.Options{Recipients: p.worker.config.Recipients})
	return err
}

// flush writes the present piece, if there is one.
func (p *pieces) flush(ctx context.Context) error {
	if p.writer == nil || p.piece.Records == 0 {
		return nil
	}
	data, sum, err := p.writer.Finish()
	p.writer = nil
	if err != nil {
		return err
	}
	if err := p.worker.config.Target.Put(ctx, p.piece.Name, data); err != nil {
		return err
	}
	p.piece.Size, p.piece.Sum = uint64(sum.Size), sum.SHA256
	p.done.Pieces = append(p.done.Pieces, p.piece)
	return nil
}
