package engine

import (
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// ingestDirName is the directory of tables until they are ingested. Its contents are deleted at
// each start.
const ingestDirName = "ingest"

// ingestDir allocates the files.
type ingestDir struct {
	fs   vfs.FS
	dir  string
	last atomic.Uint64
}

// clean removes what a former process left, and makes the directory.
func (d *ingestDir) clean() error {
	if err := d.fs.MkdirAll(d.dir, 0o755); err != nil {
		return err
	}
	names, err := d.fs.List(d.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := d.fs.Remove(d.fs.PathJoin(d.dir, name)); err != nil && !isNotExist(err) {
			return err
		}
	}
	return nil
}

// remove removes those of the files that still exist. A file that cannot be removed goes at the
// next start.
func (d *ingestDir) remove(paths []string) {
	for _, path := range paths {
		_ = d.fs.Remove(path)
	}
}

// TableWriter writes one sorted table for Ingest or CommitTables. It is for one goroutine. End it
// with Finish or Abort.
type TableWriter struct {
	s    *State
	path string
	w    *sstable.Writer
	// ended is set when Finish or Abort has run.
	ended bool
}

// NewTableWriter starts a table. If the disk is full, it waits for space, as all writes do.
func (s *State) NewTableWriter() (*TableWriter, error) {
	return s.newTableWriter(vfs.WriteCategoryUnspecified)
}

// NewSpareTableWriter starts a table that is written only if there is space: if the disk is full,
// its methods return ErrNoRoom. A table that waited for space would keep what it has taken, and
// others may wait for just that.
func (s *State) NewSpareTableWriter() (*TableWriter, error) {
	return s.newTableWriter(spareCategory)
}

func (s *State) newTableWriter(category vfs.DiskWriteCategory) (*TableWriter, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	path := s.fs.PathJoin(s.tables.dir, strconv.FormatUint(s.tables.last.Add(1), 10)+".sst")
	f, err := s.fs.Create(path, category)
	if err != nil {
		return nil, fmt.Errorf("create table %s: %w", path, err)
	}
	o := s.pebbleOptions.MakeWriterOptions(0, s.db.TableFormat())
	return &TableWriter{s: s, path: path,
		w: sstable.NewWriter(objstorageprovider.NewFileWritable(f), o)}, nil
}

// Set adds a key. Keys are state keys and must come in ascending order, each once. The arguments
// are copied.
func (t *TableWriter) Set(key, value []byte) error {
	if err := t.w.Set(key, value); err != nil {
		return fmt.Errorf("write table %s: %w", t.path, err)
	}
	return nil
}

// DeleteRange makes the ingest delete the state keys in [start, end) that existed before. It does
// not delete keys of this table, set before or after the call. Ranges must come in ascending order
// and must not overlap; their order relative to keys does not matter.
func (t *TableWriter) DeleteRange(start, end []byte) error {
	if err := t.w.DeleteRange(start, end); err != nil {
		return fmt.Errorf("write table %s: %w", t.path, err)
	}
	return nil
}

// Size estimates how large the table is so far, in bytes.
func (t *TableWriter) Size() uint64 { return t.w.Raw().EstimatedSize() }

// Finish makes the table durable and returns its path, for Ingest, or for DiscardTables. On an
// error there is no table.
func (t *TableWriter) Finish() (path string, err error) {
	t.ended = true
	if err := t.w.Close(); err != nil {
		t.s.tables.remove([]string{t.path})
		return "", fmt.Errorf("finish table %s: %w", t.path, err)
	}
	if err := t.s.g.err(); err != nil {
		return "", err
	}
	return t.path, nil
}

// Abort ends the table and removes it. After Finish it does nothing; so it can be deferred.
func (t *TableWriter) Abort() {
	if t.ended {
		return
	}
	t.ended = true
	// Close is the only way to end a writer; its error does not matter here.
	_ = t.w.Close()
	t.s.tables.remove([]string{t.path})
}

// DiscardTables removes finished tables that are not needed any more.
func (s *State) DiscardTables(paths []string) { s.tables.remove(paths) }
