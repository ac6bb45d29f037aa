package tables

import (
	"fmt"
	"log/slog"
	"sync"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/keycount"
	"github.com/tidemarkdb/tidemark/range/engine"
)

// Database opens readers of a store's state, and waits for them before the state is closed. Any
// goroutine may use it.
type Database struct {
	*Layout
	name   string
	state  *engine.State
	vacant *keycount.Blocks
	logger *slog.Logger
	mu     struct {
		sync.Mutex
		closed bool
		// readers counts the pins and readers that keep the state open.
		readers sync.WaitGroup
	}
}

// NewDatabase returns the Database of a store with that name. Its readers skip the spans that
// vacant knows to have no keys.
func NewDatabase(
	name string, state *engine.State, layout *Layout, vacant *keycount.Blocks, logger *slog.Logger,
) *Database {
	return &Database{Layout: layout, name: name, state: state, vacant: vacant, logger: logger}
}

// Pin keeps the state open until Unpin. It returns false if the Database is stopped.
func (d *Database) Pin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.mu.closed {
		d.mu.readers.Add(1)
	}
	return !d.mu.closed
}

// Unpin ends a Pin.
func (d *Database) Unpin() { d.mu.readers.Done() }

// Stop makes Pin and Open fail from now on. It returns false if it was called before. Wait waits
// until the state may be closed.
func (d *Database) Stop() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	stopped := !d.mu.closed
	d.mu.closed = true
	return stopped
}

// Wait is explained at Stop.
func (d *Database) Wait() { d.mu.readers.Wait() }

// Open opens a reader of the newest state, to be closed with Done. It returns ErrClosed if the
// Database is stopped.
func (d *Database) Open() (*Reader, error) {
	if !d.Pin() {
		return nil, command.ErrClosed
	}
	r, err := NewReader(d.Layout, d.state)
	if err != nil {
		d.Unpin()
		return nil, err
	}
	r.Vacant = d.vacant
	return r, nil
}

// Done closes a reader.
func (d *Database) Done(r *Reader) {
	if err := r.Close(); err != nil {
		d.logger.Error("reading "+d.name, "error", err)
	}
	d.Unpin()
}

// ReadState runs f on the newest state.
func (d *Database) ReadState(f func(*Reader) error) error {
	r, err := d.Open()
	if err != nil {
		return err
	}
	defer d.Done(r)
	return f(r)
}

// ReadWhole is ReadState, but refuses the state while an import is running.
func (d *Database) ReadWhole(f func(*Reader) error) error { return d.ReadState(Whole(f)) }

// Whole makes f refuse while an import is running, since the state is incomplete then.
func Whole(f func(*Reader) error) func(*Reader) error {
	return func(r *Reader) error {
		if Importing(r.Meta) {
			return fmt.Errorf("%w, with %d keys so far", command.ErrImporting, r.Meta.Import.Versions)
		}
		return f(r)
	}
}
