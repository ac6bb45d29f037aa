package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// ingestion describes the ingestion under way. Its lock is held while Pebble ingests, which Pebble
// does for one ingestion at a time anyway.
type ingestion struct {
	sync.Mutex
	// heard is set when Pebble has reported the ingestion. queued is set if the tables stand in the
	// queue of memtables, behind one that they overlap, and become durable when that memtable is
	// flushed. Pebble reports during the call, so the owner of the lock reads and writes both.
	heard, queued bool
}

// ingested is called by Pebble, on the goroutine that ingests.
func (i *ingestion) ingested(info pebble.TableIngestInfo) {
	i.heard = true
	for _, t := range info.Tables {
		i.queued = i.queued || t.Level < 0
	}
}

// ExciseAll deletes the contents of spans, which do not overlap, each in a step of its own, and
// adds tables with the first of them. It takes the files, also on an error. When it returns nil the
// changes are visible and durable. It flushes the memtables only a few times, however many spans
// there are, so nothing may be written to the spans meanwhile.
//
// It must be used only for spans that are not read any more: Pebble removes the old contents a
// moment before it shows the tables, and an iterator made in between sees neither. To replace
// contents that are read, ingest tables with a deletion (TableWriter.DeleteRange).
func (s *State) ExciseAll(ctx context.Context, paths []string, spans []keys.Span) error {
	defer func() { s.tables.remove(paths) }()
	if len(spans) > 1 {
		// Otherwise each span with keys in a memtable would have that memtable flushed, and another
		// one begun.
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
// sees the state before, or all additions and deletions of the tables. It takes the files, also on
// an error. When it returns nil the change is visible and durable.
//
// Earlier commits to other spans may not be durable: memtables are flushed only if they have keys
// that the tables overlap. A caller that needs more calls Flush.
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

// ingest ingests tables and excises a span. durable is false if the change becomes durable only
// when all memtables are flushed.
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
	// Pebble reports nothing about an excision without tables, or about empty tables.
	return s.ingestion.heard && !s.ingestion.queued, s.g.err()
}
