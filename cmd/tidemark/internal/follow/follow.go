package follow

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Position is the position of a file in its feed.
type Position struct {
	// Keyspace is the keyspace of the feed, and Of the span of its keys; a file belongs to one
	// feed.
	Keyspace string `json:"keyspace"`
	Of       string `json:"of,omitempty"`
	// Timestamp is the timestamp of the last progress.
	Timestamp string `json:"timestamp"`
	// Bytes is the length of the file at the position.
	Bytes int64 `json:"bytes"`
}

// File is a file to which a feed is appended.
type File struct {
	path string
	file *os.File
	out  *bufio.Writer
	last Position
}

// Open opens or creates a file, and cuts off everything after its position. It returns the
// position. ok is false if there is none: then the file is empty, and the first Mark creates the
// position. Call Mark with the start of the feed before the first Write. Otherwise a crash may
// leave a file with content and without a position, which Open refuses. Open also refuses a file
// with the position of another feed, and a file that another process is writing.
func Open(path, keyspace, of string) (f *File, at Position, ok bool, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, at, false, err
	}
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	held, err := lock(file) // the lock lasts until the file is closed
	if err != nil {
		return nil, at, false, err
	}
	if !held {
		return nil, at, false, fmt.Errorf("another process follows into %s; end it, or give "+
			"another file",
			path)
	}
	if at, ok, err = read(path + ".position"); err != nil {
		return nil, at, false, err
	}
	if ok && (at.Keyspace != keyspace || at.Of != of) {
		return nil, at, false, fmt.Errorf("%s has the changes of keyspace %q%s, and not of %q%s; give "+
			"another file", path, at.Keyspace, about(at.Of), keyspace, about(of))
	}
	f = &File{path: path, file: file, out: bufio.NewWriterSize(file, 256<<10),
		last: Position{Keyspace: keyspace, Of: of}}
	if err := f.begin(at, ok); err != nil {
		return nil, at, false, err
	}
	return f, at, ok, nil
}

func about(of string) string {
	if of == "" {
		return ""
	}
	return " (" + of + ")"
}

// begin truncates the file to its position.
func (f *File) begin(at Position, ok bool) error {
	info, err := f.file.Stat()
	switch {
	case err != nil:
		return err
	case !ok && info.Size() > 0:
		return fmt.Errorf("%s holds something, and %s.position, which says how far that is, is not "+
			"there; give another file", f.path, f.path)
	case info.Size() < at.Bytes:
		return fmt.Errorf("%s has %d bytes, and had %d when %s.position was written: something was "+
			"lost or cut off; give another file", f.path, info.Size(), at.Bytes, f.path)
	}
	if ok {
		f.last = at
	}
	if err := f.file.Truncate(at.Bytes); err != nil {
		return err
	}
	_, err = f.file.Seek(at.Bytes, io.SeekStart)
	return err
}

// Write appends to the file. The bytes may be buffered.
func (f *File) Write(p []byte) (int, error) {
	n, err := f.out.Write(p)
	f.last.Bytes += int64(n)
	return n, err
}

// Mark syncs everything written so far, and stores timestamp as the position.
func (f *File) Mark(timestamp string) error {
	if err := f.out.Flush(); err != nil {
		return err
	}
	if err := f.file.Sync(); err != nil {
		return err
	}
	f.last.Timestamp = timestamp
	return write(f.path+".position", f.last)
}

// Close closes the file. The next Open cuts off everything written after the last Mark.
func (f *File) Close() error { return errors.Join(f.out.Flush(), f.file.Close()) }

// read reads a position.
func read(path string) (at Position, ok bool, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return at, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &at)
	}
	if err != nil || at.Timestamp == "" || at.Bytes < 0 {
		if err == nil {
			err = errors.New("it has no timestamp")
		}
		return Position{}, false, fmt.Errorf("%s is not a position: %w", path, err)
	}
	return at, true, nil
}

// write replaces a position. When it returns, the position survives a power failure.
func write(path string, at Position) error {
	data, err := json.Marshal(at)
	if err != nil {
		return err
	}
	next := path + ".next"
	file, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(data, '\n'))
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
