package tables

import (
	"fmt"
	"log/slog"
	"sync"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/keycount"
	"github.com/tidemarkdb/tidemark/range/engine"
)

// Database opens readers of a store's state, and knows when the last of them is closed. It may be
// used by any goroutine.
type Database struct {
	*Layout
	name   string
	state  *engine.State
	vacant *keycount.Blocks
	logger *slog.Logger
	mu     struct {
		sync.Mutex
		closed bool
		// readers counts what keeps the state open.
		readers sync.WaitGroup
	}
}

// NewDatabase returns the Database of a store with that name. Its readers pass over the spans that
// vacant knows to have no keys.
func NewDatabase(
	name string, state *engine.State, layout *Layout, vacant *keycount.Blocks, logger *slog.Logger,
) *Database {
	return &Database{Layout: layout, name: name, state: state, vacant: vacant, logger: logger}
}

// Pin keeps the state open until Unpin; false: the Database is closed.
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

// Stop has Pin and Open refuse from now on; false: that was so before. Wait waits until the state
// may be closed.
func (d *Database) Stop() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	stopped := !d.mu.closed
	d.mu.closed = true
	return stopped
}

// Wait: see Stop.
func (d *Database) Wait() { d.mu.readers.Wait() }

// Open starts reading the newest state, until Done. ErrClosed says that the Database is closed.
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

// ReadWhole is ReadState, and refuses a state that is a part of what is being imported.
func (d *Database) ReadWhole(f func(*Reader) error) error { return d.ReadState(Whole(f)) }

// Whole makes f refuse while an import is under way: a part of an import is no state.
func Whole(f func(*Reader) error) func(*Reader) error {
	return func(r *Reader) error {
		if Importing(r.Meta) {
			return fmt.Errorf("%w, with %d keys so far", command.ErrImporting, r.Meta.Import.Versions)
		}
		return f(r)
	}
}
