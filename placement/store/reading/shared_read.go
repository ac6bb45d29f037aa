package reading

import (
	"context"
	"errors"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// sharedRead is shared by reads that arrived together, and run one after the other. They confirm
// once that this member is up to date, and read one state. One goroutine at a time uses it.
type sharedRead struct {
	reads *Reads
	// confirmed is set if this member was found up to date at some moment after the reads arrived.
	confirmed bool
	// reader is opened by the first read. If confirmed is set, it was opened after that moment.
	reader *tables.Reader
}

// sharedReadKey is the key of a context's *sharedRead.
type sharedReadKey struct{}

// WithSharedRead returns a context for reads, by Read and ReadTxnAs, that all arrived before this
// call, and run one after the other. The reads share their work. The caller calls end after the
// last.
//
// Each read still sees all that was acknowledged before the read arrived.
func (x *Reads) WithSharedRead(ctx context.Context) (_ context.Context, end func()) {
	shared := &sharedRead{reads: x}
	return context.WithValue(ctx, sharedReadKey{}, shared), shared.close
}

// sharedReadOf returns the sharedRead of a context; nil if it has none, or one of another store.
func (x *Reads) sharedReadOf(ctx context.Context) *sharedRead {
	shared, _ := ctx.Value(sharedReadKey{}).(*sharedRead)
	if shared == nil || shared.reads != x {
		return nil
	}
	return shared
}

// confirmShared is Confirm for a read that may share the confirmation.
func (x *Reads) confirmShared(ctx context.Context) error {
	shared := x.sharedReadOf(ctx)
	if shared == nil {
		return x.Confirm(ctx)
	}
	if shared.confirmed {
		return nil
	}
	// The open state may be too old, and must not be held during the wait.
	shared.close()
	if err := x.Confirm(ctx); err != nil {
		return err
	}
	shared.confirmed = true
	return nil
}

// readShared runs f on the shared state. If users and roles have changed since the state was
// opened, readShared calls f again with a newer state.
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

// read runs f on the shared state, and reports whether it has opened the state.
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
