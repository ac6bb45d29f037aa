package target

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// failing opens a directory as a target whose nth step of writes fails; steps counts them.
func failing(t *testing.T, dir string, n int, err error, andAllAfter bool) (opened Target,
	steps *int) {
	t.Helper()
	file := openDirectory(t, dir).(*fileTarget)
	steps = new(int)
	file.before = func(string, string) error {
		if *steps++; *steps == n || andAllAfter && *steps > n {
			return err
		}
		return nil
	}
	return file, steps
}

// files are the files below a directory, temporary ones too.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, filepath.Base(path))
		}
		return err
	}))
	return names
}

var (
	oldContent = []byte("old")
	// newContent takes two steps to write.
	newContent = bytes.Repeat([]byte("new"), writeStep/2)
)

// attempt puts or creates an object.
func attempt(t *testing.T, opened Target, create bool) error {
	t.Helper()
	if create {
		return opened.Create(t.Context(), "a/b", newContent)
	}
	return opened.Put(t.Context(), "a/b", newContent)
}

// A full disk, met at whichever step of a write, is said to be full; nothing of the write is left,
// and the object that was there is.
func TestFullDisk(t *testing.T) {
	for _, create := range []bool{false, true} {
		for n := 1; ; n++ {
			dir := t.TempDir()
			if !create {
				must(t, openDirectory(t, dir).Put(t.Context(), "a/b", oldContent))
			}
			opened, steps := failing(t, dir, n, syscall.ENOSPC, false)
			err := attempt(t, opened, create)
			if *steps < n {
				must(t, err)
				if n < 6 {
					t.Errorf("a write has %d steps", n-1)
				}
				break
			}
			got, reading := opened.Get(t.Context(), "a/b")
			switch {
			case err == nil || bytes.Equal(got, newContent):
				// The object was there already: only its folder was not synced, or the temporary name not
				// removed.
				if err != nil {
					wants(t, err, ErrFull)
				}
				must(t, reading)
			case create:
				wants(t, err, ErrFull)
				wants(t, reading, ErrNotFound)
				if left := files(t, dir); len(left) > 0 {
					t.Errorf("step %d: left over: %q", n, left)
				}
			default:
				wants(t, err, ErrFull)
				if left := files(t, dir); !slices.Equal(left, []string{"b"}) ||
					!bytes.Equal(got, oldContent) {
					t.Errorf("step %d: %q are there, and %d bytes", n, left, len(got))
				}
			}
			// With space, the same write succeeds.
			if err := attempt(t, opened, create); err != nil && !errors.Is(err, ErrExists) {
				t.Errorf("step %d: with space: %v", n, err)
			}
		}
	}
}

// A crash at whichever step of a write leaves the old object or the new one, whole, and nothing
// that lists show or Sweep does not remove.
func TestCrashRemains(t *testing.T) {
	crashed := errors.New("crashed")
	left := 0
	for _, create := range []bool{false, true} {
		for n := 1; ; n++ {
			dir := t.TempDir()
			if !create {
				must(t, openDirectory(t, dir).Put(t.Context(), "a/b", oldContent))
			}
			opened, steps := failing(t, dir, n, crashed, true)
			if err := attempt(t, opened, create); *steps < n {
				must(t, err)
				break
			}
			opened = openDirectory(t, dir) // as the next process does
			got, err := opened.Get(t.Context(), "a/b")
			there := names(t, opened, "")
			switch {
			case err == nil && bytes.Equal(got, newContent), !create && bytes.Equal(got, oldContent):
				if !slices.Equal(there, []string{"a/b"}) {
					t.Errorf("step %d: the objects are %q", n, there)
				}
			case !create || !errors.Is(err, ErrNotFound) || len(there) > 0:
				t.Errorf("step %d: %d bytes, %v; the objects are %q", n, len(got), err, there)
			}
			removed, err := opened.Sweep(t.Context(), "", time.Now().Add(time.Hour))
			must(t, err)
			left += removed
			if found := files(t, dir); len(found) != len(there) {
				t.Errorf("step %d: after the sweep there are %q", n, found)
			}
			if err := attempt(t, opened, create); err != nil && !errors.Is(err, ErrExists) {
				t.Errorf("step %d: the write again: %v", n, err)
			}
			got, err = opened.Get(t.Context(), "a/b")
			if must(t, err); !bytes.Equal(got, newContent) {
				t.Errorf("step %d: %d bytes were written", n, len(got))
			}
		}
	}
	if left == 0 {
		t.Error("no crash left anything: the test is of no use")
	}
}
