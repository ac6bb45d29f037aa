package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// ingestion is what a State knows of the ingestion under way. The lock is held while Pebble
// ingests: it takes one at a time anyway.
type ingestion struct {
	sync.Mutex
	// heard: Pebble has said what became of the tables. queued: they stand in the queue of memtables,
	// behind one that they overlap, and become durable when that is flushed. Pebble says it in the
	// call, and so these belong to the owner of the lock.
	heard, queued bool
}

// ingested is called by Pebble, on the goroutine that ingests.
func (i *ingestion) ingested(info pebble.TableIngestInfo) {
	i.heard = true
	for _, t := range info.Tables {
		i.queued = i.queued || t.Level < 0
	}
}

// ExciseAll removes the contents of spans, which do not overlap, and adds tables with the first of
// them, each in a step of its own. It takes the files, also on an error. When it returns nil the
// changes are visible and durable. It flushes the memtables a few times, however many spans there
// are: so nothing must be written to the spans meanwhile.
//
// It is for spans that are read no more. Pebble takes away what was there a moment before it shows
// what the tables have: an iterator that is made in between sees neither. What is to take the place
// of something else is ingested with a deletion of that (TableWriter.DeleteRange).
func (s *State) ExciseAll(ctx context.Context, paths []string, spans []keys.Span) error {
	defer func() { s.tables.remove(paths) }()
	if len(spans) > 1 {
		// Each span with keys in a memtable would have that flushed, and another one begun.
		if err := s.Flush(); err != nil {
			return err
		}
	}
	all := true
	for _, span := range spans {
		durable, err := s.ingest(ctx, paths, span)
		paths = nil
		if err != nil {
			return err
		}
		all = all && durable
	}
	if all {
		return nil
	}
	return s.Flush()
}

// Ingest adds tables, which NewTableWriter made and which must not overlap, in one step: a reader
// sees what was there before, or what all of them have added and deleted. It takes the files, also
// on an error. When it returns nil the change is visible and durable.
//
// What was committed before to other spans may not be durable: memtables are flushed only if they
// have keys that the change concerns. A caller that needs more flushes.
func (s *State) Ingest(ctx context.Context, paths []string) error {
	defer s.tables.remove(paths)
	if err := s.check(); err != nil {
		return err
	}
	s.ingestion.Lock()
	s.ingestion.heard, s.ingestion.queued = false, false
	err := s.ingestTables(ctx, paths)
	durable := s.ingestion.heard && !s.ingestion.queued
	s.ingestion.Unlock()
	if err != nil {
		return s.explain(fmt.Errorf("ingest %d tables into %s: %w", len(paths), s.dir, err))
	}
	s.g.reclaim() // tables may delete
	if durable {
		return s.g.err()
	}
	return s.Flush()
}

// ingestTables has Pebble add tables, which may replace or delete what was there.
//
// Pebble adds the tables first, and raises the sequence number that iterators read at afterwards. A
// compaction that runs in between would drop what the tables replace, while a new iterator does not
// see the tables yet: it would see neither. The snapshot keeps what was there until the tables are
// visible. Compactions that began before the snapshot do not have the tables among their inputs.
func (s *State) ingestTables(ctx context.Context, paths []string) error {
	before := s.db.NewSnapshot()
	err := s.db.Ingest(ctx, paths)
	return errors.Join(err, before.Close())
}

// ingest excises a span, and says whether the change is durable. If it is not, it is when all
// memtables are flushed.
func (s *State) ingest(ctx context.Context, paths []string, span keys.Span) (durable bool,
	err error) {
	defer s.tables.remove(paths)
	if err := s.check(); err != nil {
		return false, err
	}
	s.ingestion.Lock()
	defer s.ingestion.Unlock()
	s.ingestion.heard, s.ingestion.queued = false, false
	excise := pebble.KeyRange{Start: span.Start, End: span.End}
	if _, err := s.db.IngestAndExcise(ctx, paths, nil, nil, excise); err != nil {
		return false, s.explain(fmt.Errorf("ingest %d tables into %s: %w", len(paths), s.dir, err))
	}
	s.g.reclaim()
	// Of an excision alone, and of tables with nothing in them, Pebble says nothing.
	return s.ingestion.heard && !s.ingestion.queued, s.g.err()
}
