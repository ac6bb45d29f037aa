package changelog

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/range/backup/job"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
)

// coordination writes the changes of the coordination store since the round before. If the store no
// longer has those changes, coordination writes a whole copy. If the cluster has no coordination
// store, the round does not mention one.
func (w *Writer) coordination(ctx context.Context, r *manifest.Round,
	state job.Coordination) (err error) {
	if state == nil {
		return nil
	}
	r.Revision = state.Revision()
	attempt := w.config.Random()
	write := func(kind string, copying func(part func([]byte) error) error) (*job.BlobWriter, error) {
		b := &job.BlobWriter{Target: w.config.Target, Recipients: w.spec.Recipients, Kind: kind,
			Name: func(part int) string {
				return manifest.LogCoordinationName(r.Log, r.After.Timestamp, attempt, part)
			}}
		return b, copying(func(part []byte) error { return b.Write(ctx, part) })
	}
	since, changes := w.state.Revision, true
	b, err := write(manifest.CoordinationChangesKind, func(part func([]byte) error) (err error) {
		r.Digest, err = state.Changes(ctx, since, part)
		return err
	})
	switch {
	case errors.Is(err, job.ErrTooOld):
		attempt = w.config.Random()
		since, changes, r.Digest = 0, false, ""
		b, err = write(manifest.CoordinationKind, func(part func([]byte) error) error {
			return state.Copy(ctx, part)
		})
	case err == nil && since == r.Revision && r.Digest == w.state.Digest && b.Written() == 0:
		return nil
	}
	if err != nil {
		return fmt.Errorf("the coordination store: %w", err)
	}
	if r.Coordination, err = b.Finish(ctx); err == nil {
		r.Coordination.Revision, r.Coordination.Since = r.Revision, since
		r.Coordination.Changes = changes
	}
	return err
}
