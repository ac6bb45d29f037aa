package engine

import (
	"sync"
	"sync/atomic"
)

// scratch counts the bytes that unfinished compactions have written. Compactions give up and free
// them when space is short (compactionSpace), so these bytes are not taken for good: work that
// needs the space more may count on it.
type scratch struct {
	total atomic.Int64

	mu struct {
		sync.Mutex
		// files holds the tables that compactions write, by file name.
		files map[string]*scratchFile
	}
}

// scratchFile counts what was written to one table.
type scratchFile struct {
	scratch *scratch
	bytes   atomic.Int64
	// over is set when the table does not count any more.
	over atomic.Bool
}

// begin notes a new table of a compaction.
func (s *scratch) begin(name string) *scratchFile {
	f := &scratchFile{scratch: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.files == nil {
		s.mu.files = make(map[string]*scratchFile)
	}
	s.mu.files[name] = f
	return f
}

// wrote counts a write to the table. A nil file counts nothing.
func (f *scratchFile) wrote(n int) {
	if f == nil || f.over.Load() {
		return
	}
	f.bytes.Add(int64(n))
	f.scratch.total.Add(int64(n))
}

// end notes that a table has become a part of the database, or was removed. Nothing is written to
// it any more.
func (s *scratch) end(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(name)
}

func (s *scratch) endLocked(name string) {
	f := s.mu.files[name]
	delete(s.mu.files, name)
	if f != nil && !f.over.Swap(true) {
		s.total.Add(-f.bytes.Load())
	}
}

// idle notes that no compaction runs.
func (s *scratch) idle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.mu.files {
		s.endLocked(name)
	}
}
