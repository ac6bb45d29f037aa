package engine

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// Reader is a source to read from: a State, a Snapshot, or an indexed StateBatch. Keys are state
// keys (package keys).
type Reader interface {
	// Get reads one key. The value is valid until the closer is closed. If the key does not exist,
	// the error is pebble.ErrNotFound.
	Get(key []byte) ([]byte, io.Closer, error)
	// NewIter returns an iterator. Close it.
	NewIter(o *pebble.IterOptions) (*pebble.Iterator, error)
}

var (
	_ Reader = (*State)(nil)
	_ Reader = (*StateBatch)(nil)
)

// State is the engine of applied data: a commit survives a crash once it was flushed, and a crash
// keeps the commits up to some point. Keys are state keys. It is safe for concurrent use.
type State struct {
	*store
	tables ingestDir
}

// StateBatch is a set of changes to a State, made in one commit. It is for one goroutine at a time.
// Close it after use.
type StateBatch struct {
	*pebble.Batch
}

// OpenState opens or creates a state.
func OpenState(o Options) (*State, error) {
	s, err := openStore(o, kindState, stateOptions)
	if err != nil {
		return nil, err
	}
	st := &State{store: s, tables: ingestDir{fs: s.fs, dir: s.fs.PathJoin(s.dir, ingestDirName)}}
	if err := st.tables.clean(); err != nil {
		_ = s.close(nil)
		return nil, fmt.Errorf("open state engine: remove left-over tables: %w", err)
	}
	if err := s.g.err(); err != nil {
		_ = s.close(nil)
		return nil, fmt.Errorf("open state engine: %w", err)
	}
	return st, nil
}

// NewBatch returns an empty batch.
func (s *State) NewBatch() *StateBatch { return &StateBatch{s.db.NewBatch()} }

// NewIndexedBatch returns an empty batch that is a Reader, of the state with the batch's own
// changes on top. It is slower to fill.
func (s *State) NewIndexedBatch() *StateBatch { return &StateBatch{s.db.NewIndexedBatch()} }

// Commit makes the changes of the batch, all or none; they show when it returns. On an error the
// state has failed.
func (s *State) Commit(b *StateBatch) error {
	if err := s.check(); err != nil {
		return err
	}
	if err := s.admit(b.Len()); err != nil {
		return err
	}
	if err := s.db.Apply(b.Batch, pebble.NoSync); err != nil {
		return fmt.Errorf("commit to the state in %s: %w", s.dir, err)
	}
	return s.g.err()
}

// newDurableIter returns an iterator over what would be left after a crash at this moment.
func (s *State) newDurableIter(o *pebble.IterOptions) (*pebble.Iterator, error) {
	var durable pebble.IterOptions
	if o != nil {
		durable = *o
	}
	durable.OnlyReadGuaranteedDurable = true
	i, err := s.NewIter(&durable)
	if err != nil {
		return nil, err
	}
	// INVARIANT: the failure is checked after the iterator was made: what the iterator sees was
	// durable before any failure.
	if err := s.g.err(); err != nil {
		_ = i.Close()
		return nil, err
	}
	return i, nil
}

// DurableGet reads one key as it would be after a crash at this moment. It copies the value.
func (s *State) DurableGet(key []byte) (value []byte, found bool, err error) {
	i, err := s.newDurableIter(nil)
	if err != nil {
		return nil, false, err
	}
	value, found, err = getByIter(i, key)
	value = bytes.Clone(value)
	if closeErr := i.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, false, fmt.Errorf("read durable %s: %w", keys.PrettyState(key), err)
	}
	return value, found, nil
}

// getByIter reads one key. The value is valid until the iterator moves.
func getByIter(i *pebble.Iterator, key []byte) (value []byte, found bool, err error) {
	if !i.SeekPrefixGE(key) || !bytes.Equal(i.Key(), key) {
		return nil, false, i.Error()
	}
	value, err = i.ValueAndErr()
	return value, err == nil, err
}

// Close flushes what can be flushed, so that the next start has little to replay, and ends the
// state. No other call may run meanwhile or come later. It may be called again.
func (s *State) Close() error { return s.close(s.flushToClose) }

// flushToClose flushes, unless the disk is full or broken: then the flush would wait for space, or
// be tried again for ever, and closing without it is as safe as a crash.
func (s *State) flushToClose() {
	s.g.awaited.Add(1)
	defer s.g.awaited.Add(-1)
	refused := s.g.refused.Load()
	done, err := s.db.AsyncFlush()
	if err != nil {
		s.logger.Warn("flush before close", "error", err)
		return
	}
	t := time.NewTicker(retryDelay)
	defer t.Stop()
	for s.g.waiting.Load() == 0 && s.g.err() == nil && s.g.refused.Load() == refused {
		select {
		case <-done:
			return
		case <-t.C:
		}
	}
}

// DiskUsage estimates how many bytes the tables on disk have of a span of state keys. Memtables are
// not counted.
func (s *State) DiskUsage(span keys.Span) (uint64, error) {
	if err := s.check(); err != nil {
		return 0, err
	}
	size, err := s.db.EstimateDiskUsage(span.Start, span.End)
	if err != nil {
		return 0, fmt.Errorf("size of a span of the state in %s: %w", s.dir, err)
	}
	return size, nil
}
