package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/placement/store/snapshot"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
)

// openSnapshot is a state to be streamed, and implements group.Snapshot.
type openSnapshot struct {
	store       *Store
	it          *pebble.Iterator
	index, term uint64
	members     *storepb.Members
}

// Snapshot implements group.StateMachine. It may run concurrently with Apply.
func (s *Store) Snapshot() (group.Snapshot, error) {
	r, err := s.Open()
	if err != nil {
		return nil, err
	}
	// Apply may run concurrently, so the applied index is read from the same state as the content.
	index, term, err := r.Applied()
	if err == nil && index == 0 {
		err = errors.New("nothing was applied to the core's store yet: there is nothing to send")
	}
	var members *storepb.Members
	if err == nil {
		members, err = r.Members()
	}
	if err != nil {
		s.Done(r)
		return nil, fmt.Errorf("snapshot of the core's store: %w", err)
	}
	if members == nil {
		members = s.founding()
	}
	return &openSnapshot{store: s, it: r.Iterator, index: index, term: term, members: members}, nil
}

func (p *openSnapshot) Index() uint64 { return p.index }
func (p *openSnapshot) Term() uint64  { return p.term }

// Write implements group.Snapshot.
func (p *openSnapshot) Write(ctx context.Context, w io.Writer) error {
	return snapshot.Write(ctx, w, p.it, p.index, p.term)
}

func (p *openSnapshot) Close() error {
	if p.it == nil {
		return nil
	}
	err := p.it.Close()
	p.it = nil
	p.store.Unpin()
	return err
}

// staged is a verified snapshot in its own table files. It implements group.Staged.
type staged struct {
	store   *Store
	paths   []string
	members *storepb.Members
}

// StageSnapshot implements group.StateMachine.
func (s *Store) StageSnapshot(
	ctx context.Context, index, term uint64, r io.Reader,
) (group.Staged, error) {
	w, err := s.config.State.NewTableWriter()
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	// One step replaces the old content by the snapshot's.
	if err := w.DeleteRange(s.Layout.Span.Start, s.Layout.Span.End); err != nil {
		return nil, err
	}
	members, err := snapshot.Copy(ctx, r, w, s.Layout, index, term)
	if err != nil {
		return nil, err
	}
	path, err := w.Finish()
	if err != nil {
		return nil, err
	}
	if members == nil {
		members = s.founding()
	}
	return &staged{store: s, paths: []string{path}, members: members}, nil
}

// Install implements group.Staged.
func (p *staged) Install() error {
	s := p.store
	if err := s.hub.Replace(func() (uint64, error) {
		// INVARIANT: no reader skips a span of the new state because the span had no keys in the old one.
		// Readers open states at any time, and look into the blocks after that. So the blocks are empty
		// before the new state can be seen, and learn nothing until load has read it.
		s.blocks.Reset(math.MaxUint64)
		if err := s.config.State.Ingest(context.Background(), p.paths); err != nil {
			return 0, err
		}
		if err := s.load(); err != nil {
			return 0, fmt.Errorf("after a snapshot was installed: %w", err)
		}
		return s.Revision(), nil
	}); err != nil {
		return err
	}
	_, term := s.Applied()
	s.EntriesSkipped(term)
	s.Wake()
	return nil
}

// Discard implements group.Staged.
func (p *staged) Discard() { p.store.config.State.DiscardTables(p.paths) }
