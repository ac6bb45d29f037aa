package reading

import (
	"context"
	"errors"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// sharedRead is shared by reads that came at the same time, and are done one after the other: that
// this member is up to date is shown once for all of them, and they read one state. It is for one
// goroutine at a time.
type sharedRead struct {
	reads *Reads
	// confirmed is set if the store was up to date at some moment since the reads came.
	confirmed bool
	// reader is opened by the first read. If confirmed is set, it was opened after that moment.
	reader *tables.Reader
}

// sharedReadKey is the key of a context's *sharedRead.
type sharedReadKey struct{}

// WithSharedRead returns a context for reads, by Read and ReadTxnAs, that had all come before this
// call, and that are done one after the other: they share the work. The caller calls end when they
// are done.
//
// Each of them has everything that was acknowledged before it came, as without it.
func (x *Reads) WithSharedRead(ctx context.Context) (_ context.Context, end func()) {
	shared := &sharedRead{reads: x}
	return context.WithValue(ctx, sharedReadKey{}, shared), shared.close
}

// sharedReadOf is that of a context; nil if it has none, or that of another store.
func (x *Reads) sharedReadOf(ctx context.Context) *sharedRead {
	shared, _ := ctx.Value(sharedReadKey{}).(*sharedRead)
	if shared == nil || shared.reads != x {
		return nil
	}
	return shared
}

// confirmShared is confirm for a read that may share it.
func (x *Reads) confirmShared(ctx context.Context) error {
	shared := x.sharedReadOf(ctx)
	if shared == nil {
		return x.Confirm(ctx)
	}
	if shared.confirmed {
		return nil
	}
	// What was read before may be older, and nothing is held while this waits.
	shared.close()
	if err := x.Confirm(ctx); err != nil {
		return err
	}
	shared.confirmed = true
	return nil
}

// readShared is read for a read that may share its state. If users and roles have changed since
// that was opened, f is called again with a newer one.
func (x *Reads) readShared(ctx context.Context, f func(*tables.Reader) error) error {
	shared := x.sharedReadOf(ctx)
	if shared == nil {
		return x.database.ReadState(f)
	}
	if x.ctx.Err() != nil {
		return command.ErrClosed
	}
	opened, err := shared.read(f)
	if !opened && errors.Is(err, authority.ErrOldRevision) {
		shared.close()
		_, err = shared.read(f)
	}
	return err
}

// read runs f on the shared state, and reports whether it has opened that.
func (r *sharedRead) read(f func(*tables.Reader) error) (opened bool, err error) {
	if r.reader == nil {
		if r.reader, err = r.reads.database.Open(); err != nil {
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
		r.reads.database.Done(r.reader)
		r.reader = nil
	}
}
