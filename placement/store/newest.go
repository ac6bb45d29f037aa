package store

import (
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/newest"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// beginFilling begins a scan of the existing keys, if that is due. It is called before anything is
// written, so that the scan has every key that the cache is not told of from here on.
func (s *Store) beginFilling() {
	f := s.newest.Begin()
	if f == nil {
		return
	}
	select {
	case s.filling <- f:
	default: // the former filling, which can no longer be used, is still under way
		f.Done(false)
	}
}

// fillNewest fills the filters of the newest versions. It is one goroutine, from New to Close.
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
	// noteEvery is how long other work has the processor in between.
	noteEvery = 5 * time.Millisecond
)

// noteKeys goes through all keys.
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
