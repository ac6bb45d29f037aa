package store

import (
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/newest"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// beginFilling begins a scan of the existing keys, if one is due. It is called before a batch is
// written, so that the scan sees every key that the cache will not learn from later batches.
func (s *Store) beginFilling() {
	f := s.newest.Begin()
	if f == nil {
		return
	}
	select {
	case s.filling <- f:
	default: // the previous scan, now useless, is still running
		f.Done(false)
	}
}

// fillNewest fills the key filters of the cache. One goroutine runs it, from New to Close.
func (s *Store) fillNewest() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case f := <-s.filling:
			err := s.noteKeys(f)
			if err != nil && !errors.Is(err, command.ErrClosed) && err != errNotWanted {
				s.config.Logger.Warn("reading the keys of "+s.config.Name+" failed; writes read what was "+
					"there before them", "error", err)
			}
			f.Done(err == nil)
		}
	}
}

var errNotWanted = errors.New("the keys are not wanted any more")

const (
	// noteEvery is the pause between the parts of the scan, which leaves the processor to other
	// work.
	noteEvery = 5 * time.Millisecond
)

// noteKeys passes all keys to the filling.
func (s *Store) noteKeys(f *newest.Filling) error {
	from := s.Layout.Table(tables.TableVersion)
	for from != nil {
		err := s.ReadState(func(r *tables.Reader) (err error) {
			from, err = r.NoteKeys(f, from)
			return err
		})
		switch {
		case err != nil:
			return err
		case !f.Added():
			return errNotWanted
		case from != nil:
			select {
			case <-s.ctx.Done():
			case <-time.After(noteEvery):
			}
		}
		if s.ctx.Err() != nil {
			return command.ErrClosed
		}
	}
	return nil
}
