package engine

import (
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"
)

// Snapshot is the state at one moment. It keeps memtables and files from being freed, so do not
// keep it for long. It is safe for concurrent use, except for Close.
//
// It is an iterator that is cloned for every read. Pebble's own snapshots are no alternative,
// because an excise changes what they show.
type Snapshot struct {
	s    *State
	root *pebble.Iterator
}

var _ Reader = (*Snapshot)(nil)

// NewSnapshot returns the state as it is now. Close it.
func (s *State) NewSnapshot() (*Snapshot, error) {
	root, err := s.NewIter(nil)
	if err != nil {
		return nil, fmt.Errorf("snapshot of the state in %s: %w", s.dir, err)
	}
	return &Snapshot{s: s, root: root}, nil
}

// NewIter returns an iterator over the snapshot. Close it; it may outlive the snapshot.
func (n *Snapshot) NewIter(o *pebble.IterOptions) (*pebble.Iterator, error) {
	if err := n.s.check(); err != nil {
		return nil, err
	}
	if o == nil {
		o = &pebble.IterOptions{}
	}
	return n.root.Clone(pebble.CloneOptions{IterOptions: o})
}

// Get reads one key of the snapshot. The value is valid until the closer is closed.
func (n *Snapshot) Get(key []byte) ([]byte, io.Closer, error) {
	i, err := n.NewIter(nil)
	if err != nil {
		return nil, nil, err
	}
	value, found, err := getByIter(i, key)
	if err == nil && !found {
		err = pebble.ErrNotFound
	}
	if err != nil {
		// The iterator would only repeat its error.
		_ = i.Close()
		return nil, nil, err
	}
	return value, i, nil
}

// Close frees the snapshot.
func (n *Snapshot) Close() error { return n.root.Close() }
