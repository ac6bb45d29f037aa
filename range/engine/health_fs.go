package engine

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// healthFS is the filesystem that Pebble uses. It passes reads on, and reports changes of the disk
// to diskHealth.
type healthFS struct {
	vfs.FS
	g *diskHealth
}

var _ vfs.FS = healthFS{}

// Unwrap is for vfs.Root.
func (s healthFS) Unwrap() vfs.FS { return s.FS }

// change runs an operation on file names, and waits for space if there is none. Its failure marks
// the engine failed only while the engine is being opened; afterwards Pebble handles such an error
// itself.
func (s healthFS) change(op func() error) error {
	for {
		if err := s.g.err(); err != nil {
			return s.g.unlessOpening(err)
		}
		err := op()
		switch {
		case err == nil:
			return nil
		case s.g.awaitRoom(err):
		case s.g.opening.Load():
			s.g.fail(err)
			return nil
		default:
			return err
		}
	}
}

// create makes a file to write to. For the WAL of a failed log, and for every file of a database
// that failed while it was opened, it returns a file that discards all writes.
func (s healthFS) create(name string, category vfs.DiskWriteCategory,
	op func() (vfs.File, error)) (vfs.File, error) {
	hide := s.g.hideWAL && category == walCategory
	for {
		if err := s.g.err(); err != nil {
			if hide || s.g.opening.Load() {
				return newDiscardFile(name)
			}
			return nil, s.g.refuse(err)
		}
		f, err := op()
		switch {
		case err == nil:
			file := &healthFile{File: f, g: s.g, name: name, category: category, hide: hide}
			if number, ok := walNumber(name); ok && category == walCategory && s.g.names != nil {
				file.start = &walStart{namedWAL: namedWAL{number: number}}
			}
			if paced(category) {
				file.piece = &piece{category: category}
			}
			if category == compactionCategory || category == spareCategory {
				file.space = &compactionSpace{spare: category == spareCategory}
			}
			if category == compactionCategory {
				file.scratch = s.g.scratch.begin(s.FS.PathBase(name))
			}
			return file, nil
		case noRoom(category, err) != nil:
			return nil, noRoom(category, err)
		case s.g.awaitRoom(err):
		case hide || s.g.opening.Load():
			s.g.fail(fmt.Errorf("create %s: %w", name, err))
		default:
			// Pebble repeats a flush at once; slow it down.
			s.g.refused.Add(1)
			s.g.pause(retryDelay)
			return nil, err
		}
	}
}

func (s healthFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return s.create(name, category, func() (vfs.File, error) {
		f, err := s.FS.Create(name, category)
		if err == nil && category == walCategory && s.g.fillWAL > 0 &&
			roomFor(s.FS, name, 8*s.g.fillWAL) {
			fill(f, s.g.fillWAL)
		}
		return f, err
	})
}

func (s healthFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File,
	error) {
	if number, ok := walNumber(oldname); ok && s.g.names != nil {
		_ = s.g.names.obsolete(number, false) // an error has failed the engine
	}
	return s.create(newname, category,
		func() (vfs.File, error) { return s.FS.ReuseForWrite(oldname, newname, category) })
}

func (s healthFS) OpenReadWrite(name string, category vfs.DiskWriteCategory,
	opts ...vfs.OpenOption) (vfs.File, error) {
	return s.create(name, category,
		func() (vfs.File, error) { return s.FS.OpenReadWrite(name, category, opts...) })
}

func (s healthFS) OpenDir(name string) (vfs.File, error) {
	f, err := s.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	// Pebble syncs the directory when it rotates the WAL, and panics if that fails after it has
	// made another manifest. Hiding this failure is safe for other files too: they count only when
	// the manifest names them, and failed writes of the manifest are not hidden.
	return &healthFile{File: f, g: s.g, name: name, hide: true, isDir: true}, nil
}

func (s healthFS) Link(oldname, newname string) error {
	return s.change(func() error { return s.FS.Link(oldname, newname) })
}

func (s healthFS) Rename(oldname, newname string) error {
	if number, ok := fileNumber(newname, "OPTIONS-", ""); ok && s.g.names != nil {
		if err := s.g.names.opening(number); err != nil {
			return err
		}
	}
	return s.change(func() error { return s.FS.Rename(oldname, newname) })
}

func (s healthFS) MkdirAll(dir string, perm os.FileMode) error {
	return s.change(func() error { return s.FS.MkdirAll(dir, perm) })
}

// Remove frees space, so it does not wait for space.
func (s healthFS) Remove(name string) error {
	if err := s.g.err(); err != nil {
		return s.g.unlessOpening(err)
	}
	if number, ok := walNumber(name); ok && s.g.names != nil {
		if err := s.g.names.obsolete(number, true); err != nil {
			return s.g.unlessOpening(err)
		}
	}
	err := s.FS.Remove(name)
	if err == nil {
		s.g.scratch.end(s.FS.PathBase(name))
		if s.g.low.Load() {
			s.g.checkFreeSpace() // writes wait for it
		}
	}
	return err
}

func (s healthFS) RemoveAll(name string) error {
	if err := s.g.err(); err != nil {
		return s.g.unlessOpening(err)
	}
	return s.FS.RemoveAll(name)
}

// healthFile watches the writes and syncs of one file.
type healthFile struct {
	vfs.File
	g        *diskHealth
	name     string
	category vfs.DiskWriteCategory
	// hide: report success once the engine has failed.
	hide bool
	// isDir is set for directories, which never wait for space.
	isDir bool
	// piece is set for files that are written with pauses.
	piece *piece
	// start is set for a WAL of the Log.
	start *walStart
	// space is set for files that must leave a part of the reserve free.
	space *compactionSpace
	// scratch is set for the tables of compactions.
	scratch *scratchFile
}

func (f *healthFile) hides() bool { return f.hide || f.g.opening.Load() }

// failed marks the engine failed and returns the error for the caller.
func (f *healthFile) failed(op string, err error) error {
	f.g.fail(fmt.Errorf("%s %s: %w", op, f.name, err))
	if f.hides() {
		return nil
	}
	return f.g.err()
}

// refused returns the result of an operation after the engine has failed.
func (f *healthFile) refused(err error) error {
	if f.hides() {
		return nil
	}
	if f.isDir {
		return err
	}
	return f.g.refuse(err)
}

func (f *healthFile) Write(p []byte) (int, error) {
	if err := f.space.take(f.g, len(p)); err != nil {
		return 0, err
	}
	if f.start != nil {
		// This comes first, because vfs.MemFS changes its argument in race builds. If the write
		// fails, the file is not named any more.
		f.start.write(p)
	}
	n, err := f.write(p, f.File.Write)
	if f.piece != nil && err == nil {
		f.piece.wrote(f.g, n)
	}
	return n, err
}

func (f *healthFile) WriteAt(p []byte, offset int64) (int, error) {
	done := 0
	return f.write(p, func(rest []byte) (int, error) {
		n, err := f.File.WriteAt(rest, offset+int64(done))
		done += n
		return n, err
	})
}

// write writes p. After a write that found the disk full, it continues behind the bytes that were
// written.
func (f *healthFile) write(p []byte, op func([]byte) (int, error)) (int, error) {
	done := 0
	for {
		if err := f.g.err(); err != nil {
			if err = f.refused(err); err != nil {
				return done, err
			}
			return len(p), nil
		}
		n, err := op(p[done:])
		done += n
		f.scratch.wrote(n)
		f.g.wrote(n)
		if err == nil && done < len(p) {
			err = io.ErrShortWrite
		}
		if err == nil {
			return done, nil
		}
		if err := noRoom(f.category, err); err != nil {
			return done, err
		}
		if f.g.awaitRoom(err) {
			continue
		}
		if err = f.failed("write", err); err != nil {
			return done, err
		}
		return len(p), nil
	}
}

// sync does not wait for space: after a failed fsync the pages may be gone, so a second fsync that
// succeeds proves nothing.
func (f *healthFile) sync(op func() error) error {
	if err := f.g.err(); err != nil {
		return f.refused(err)
	}
	if err := op(); err != nil {
		if err := noRoom(f.category, err); err != nil {
			return err // nothing will read it
		}
		return f.failed("sync", err)
	}
	return nil
}

func (f *healthFile) Sync() error { return f.named(f.sync(f.File.Sync)) }

func (f *healthFile) SyncData() error {
	if !f.hide {
		return f.sync(f.File.SyncData)
	}
	start := time.Now()
	err := f.sync(f.File.SyncData)
	f.g.walSyncSeconds.Observe(time.Since(start).Seconds())
	return f.named(err)
}

// named puts a WAL file on the list after its sync, before anything in the file is acknowledged.
func (f *healthFile) named(err error) error {
	if err != nil || f.start == nil || f.start.named || f.g.err() != nil {
		return err
	}
	if err := f.start.synced(f.g.names); err != nil {
		return f.failed("name", err)
	}
	return nil
}

func (f *healthFile) SyncTo(length int64) (fullSync bool, err error) {
	err = f.sync(func() error {
		fullSync, err = f.File.SyncTo(length)
		return err
	})
	return fullSync, err
}

func (f *healthFile) Close() error {
	err := f.File.Close()
	if err != nil && f.hides() && f.g.err() != nil {
		return nil
	}
	return err
}

// discardFile discards the writes of a failed engine's WAL.
type discardFile struct {
	// File is an empty file in memory, for Stat and Close.
	vfs.File
}

func newDiscardFile(name string) (vfs.File, error) {
	fs := vfs.NewMem()
	f, err := fs.Create(fs.PathBase(name), vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	return discardFile{f}, nil
}

func (discardFile) Write(p []byte) (int, error)            { return len(p), nil }
func (discardFile) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (discardFile) Sync() error                            { return nil }
func (discardFile) SyncData() error                        { return nil }
func (discardFile) SyncTo(int64) (bool, error)             { return true, nil }
