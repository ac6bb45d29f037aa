package store

import (
	"context"
	"errors"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// sharedRead is what reads share that came at the same time, and are done one after the other: that
// this member is up to date is shown once for all of them, and they read one state. It is for one
// goroutine at a time.
type sharedRead struct {
	store *Store
	// confirmed: the store was up to date at some moment since the reads came.
	confirmed bool
	// reader is opened by the first read. It is of after that moment, if confirmed is set.
	reader *tables.Reader
}

// sharedReadKey is the key of a context's *sharedRead.
type sharedReadKey struct{}

// WithSharedRead returns a context for reads, by Read and ReadTxnAs, that had all come before this
// call, and that are done one after the other: they share the work. The caller calls end when they
// are done.
//
// Each of them has everything that was acknowledged before it came, as without it.
func (s *Store) WithSharedRead(ctx context.Context) (_ context.Context, end func()) {
	shared := &sharedRead{store: s}
	return context.WithValue(ctx, sharedReadKey{}, shared), shared.close
}

// sharedReadOf is that of a context; nil if it has none, or that of another store.
func (s *Store) sharedReadOf(ctx context.Context) *sharedRead {
	shared, _ := ctx.Value(sharedReadKey{}).(*sharedRead)
	if shared == nil || shared.store != s {
		return nil
	}
	return shared
}

// confirmShared is confirm for a read that may share it.
func (s *Store) confirmShared(ctx context.Context) error {
	shared := s.sharedReadOf(ctx)
	if shared == nil {
		return s.Confirm(ctx)
	}
	if shared.confirmed {
		return nil
	}
	// What was read before may be older, and nothing is held while this waits.
	shared.close()
	if err := s.Confirm(ctx); err != nil {
		return err
	}
	shared.confirmed = true
	return nil
}

// readShared is read for a read that may share its state. If users and roles have changed since
// that was opened, f is called again with a newer one.
func (s *Store) readShared(ctx context.Context, f func(*tables.Reader) error) error {
	shared := s.sharedReadOf(ctx)
	if shared == nil {
		return s.ReadState(f)
	}
	if s.ctx.Err() != nil {
		return command.ErrClosed
	}
	opened, err := shared.read(f)
	if !opened && errors.Is(err, authority.ErrOldRevision) {
		shared.close()
		_, err = shared.read(f)
	}
	return err
}

// read runs f on the state that is shared, and says whether it has opened that.
func (r *sharedRead) read(f func(*tables.Reader) error) (opened bool, err error) {
	if r.reader == nil {
		if r.reader, err = r.store.open(r.store.config.State); err != nil {
			r.reader = nil
			return false, err
		}
		opened = true
	}
	state := r.reader
	state.Interrupted, state.Counts, state.Blocks, state.Newest, state.Passed = nil, nil, nil, nil, 0
	return opened, f(state)
}

// close closes the reader, if one is open.
func (r *sharedRead) close() {
	if r.reader != nil {
		r.store.done(r.reader)
		r.reader = nil
	}
}
