package catalog

import (
	"errors"
	"fmt"
	"io"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/target"
)

// VerifiedLog describes a log that was verified.
type VerifiedLog struct {
	ID string
	// Restorable is the period of the log that can be restored. It is zero if there is no backup to
	// start from.
	Restorable
}

// log verifies a log, from the oldest round that still exists to the last round.
func (v *verification) log(heads manifest.Heads, l *Log) error {
	if l.Rounds == 0 {
		return nil
	}
	end, err := v.rounds(l)
	if stop := v.ctx.Err(); stop != nil {
		return stop
	}
	if errors.Is(err, archive.ErrNoIdentity) {
		v.Sealed = true
		err = errors.Join(v.sealed(manifest.RoundsPrefix(l.ID)),
			v.sealed(manifest.LogDataPrefix(l.ID)))
		end = l.Through
	}
	if err == nil && end.Less(l.Through) {
		err = fmt.Errorf("%w: it has no round after %v, and goes on at %v", manifest.ErrBroken, end,
			l.Through)
	}
	if err != nil {
		v.Problems = append(v.Problems, fmt.Sprintf("the log %s: %v", l.ID, err))
		return nil
	}
	found := VerifiedLog{ID: l.ID}
	if span, ok := l.Restorable(heads); ok {
		found.Restorable = Restorable{From: span.From, Through: end}
	}
	v.Logs = append(v.Logs, found)
	return nil
}

// rounds verifies the rounds of a log, and returns the At of the last one.
func (v *verification) rounds(l *Log) (end hlc.Timestamp, err error) {
	var before *manifest.Round
	for end = l.First; ; {
		r, err := v.catalog.Round(v.ctx, l.ID, end)
		if errors.Is(err, target.ErrNotFound) {
			return end, nil
		}
		if err != nil {
			return end, err
		}
		if before != nil {
			if err := r.Follows(before); err != nil {
				return end, err
			}
		}
		for i := range r.Pieces {
			if err := v.logPiece(r, &r.Pieces[i]); err != nil {
				return end, err
			}
			v.count(r.Pieces[i].Size, r.Pieces[i].Records)
		}
		if r.Coordination != nil {
			if err := v.catalog.Coordination(v.ctx, r.Coordination, func(part []byte) error {
				v.count(uint64(len(part)), 0)
				return nil
			}); err != nil {
				return end, err
			}
		}
		before, end = r, r.At.Timestamp
	}
}

// logPiece reads a piece to its end.
func (v *verification) logPiece(r *manifest.Round, p *manifest.Piece) error {
	reader, err := v.catalog.logPiece(v.ctx, r, p)
	if err != nil {
		return err
	}
	var first, last []byte
	n, size := uint64(0), uint64(0)
	for {
		record, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		if n == 0 {
			first = append(first, record.Key...)
		}
		last = append(last[:0], record.Key...)
		n, size = n+1, size+uint64(len(record.Key)+len(record.Value))
	}
	if n != p.Records || size != p.Bytes || string(first) != string(p.First) ||
		string(last) != string(p.Last) {
		return fmt.Errorf("%s has %d records of %d bytes, its round says %d of %d", p.Name, n, size,
			p.Records, p.Bytes)
	}
	return nil
}
