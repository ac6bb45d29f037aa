package target

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// fileTarget keeps objects as files below a directory.
type fileTarget struct {
	// root is the directory, absolute and clean.
	root string
	// before is called before each step of a write, with the file or folder; an error is that of the
	// step, which is left out. nil, as it is but in tests: all steps are done.
	before func(step, path string) error

	mu struct {
		sync.Mutex
		// durable has directories that this target has synced into the directory above them. There
		// are maxDurable at most.
		durable map[string]struct{}
	}
}

var _ Target = (*fileTarget)(nil)

// openFile makes the target of a file URL.
func openFile(u *url.URL) (Target, error) {
	switch {
	case u.Host != "" && u.Host != "localhost":
		return nil, fmt.Errorf("%w: a file target has three slashes, file:///directory; %q is not a "+
			"directory of this machine", ErrInvalid, u.Host)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, fmt.Errorf("%w: a file target has no parameters; write a question mark in the name "+
			"of a directory as %%3F, and a number sign as %%23", ErrInvalid)
	case !strings.HasPrefix(u.Path, "/") || strings.ContainsRune(u.Path, 0):
		return nil, fmt.Errorf("%w: a file target is an absolute path, file:///directory", ErrInvalid)
	}
	root := filepath.Clean(filepath.FromSlash(u.Path))
	if root == filepath.Dir(root) {
		return nil, fmt.Errorf("%w: a file target is a directory below the root, file:///directory",
			ErrInvalid)
	}
	t := &fileTarget{root: root}
	t.mu.durable = map[string]struct{}{}
	return t, nil
}

func (t *fileTarget) String() string {
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(t.root)}).String()
}

// Close implements Target.
func (t *fileTarget) Close() error { return nil }

// path is the file of an object.
func (t *fileTarget) path(name string) string {
	return filepath.Join(t.root, filepath.FromSlash(name))
}

// Get implements Target.
func (t *fileTarget) Get(ctx context.Context, name string) ([]byte, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if err := ended(ctx, t.String(), "get", name); err != nil {
		return nil, err
	}
	f, err := os.Open(t.path(name))
	if err != nil {
		return nil, t.failed("get", name, err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, t.failed("get", name, err)
	case !info.Mode().IsRegular():
		return nil, t.failed("get", name, fs.ErrNotExist)
	case info.Size() > MaxObject:
		return nil, &failure{t.String(), "get", name, ErrInvalid, nil, fmt.Sprintf("it has %d bytes, "+
			"and no object has more than %d MiB", info.Size(), MaxObject>>20)}
	}
	data := make([]byte, info.Size())
	if _, err = io.ReadFull(f, data); err != nil {
		return nil, t.failed("get", name, err)
	}
	return data, nil
}

// Delete implements Target.
func (t *fileTarget) Delete(ctx context.Context, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if err := ended(ctx, t.String(), "delete", name); err != nil {
		return err
	}
	path := t.path(name)
	// os.Remove would also remove an empty folder.
	if info, err := os.Lstat(path); err != nil || info.IsDir() {
		if err == nil || missing(err) {
			return nil
		}
		return t.failed("delete", name, err)
	}
	if err := os.Remove(path); err != nil && !missing(err) {
		return t.failed("delete", name, err)
	}
	if err := t.removeEmpty(filepath.Dir(path)); err != nil {
		return t.failed("delete", name, err)
	}
	return nil
}

// removeEmpty syncs a directory in which something was removed. If it is empty, and is not the
// root, removeEmpty removes it instead, and goes on with the one above.
func (t *fileTarget) removeEmpty(dir string) error {
	for dir != t.root && os.Remove(dir) == nil {
		t.forget(dir)
		dir = filepath.Dir(dir)
	}
	if err := syncDirectory(dir); err != nil && !missing(err) {
		return err
	}
	return nil
}

// List implements Target.
func (t *fileTarget) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		if err := checkPrefix(prefix); err != nil {
			yield(Object{}, err)
			return
		}
		for found, err := range t.walk(ctx, "list", prefix) {
			switch {
			case err != nil:
				yield(Object{}, err)
				return
			case !found.info.Mode().IsRegular() || found.temporary():
				continue
			}
			object := Object{Name: found.name, Size: found.info.Size(), Modified: found.info.ModTime()}
			if !yield(object, nil) {
				return
			}
		}
	}
}

// Sweep implements Target. Folders come after what is in them, so that a tree of folders goes at
// once.
func (t *fileTarget) Sweep(
	ctx context.Context, prefix string, olderThan time.Time,
) (removed int, err error) {
	if err := checkPrefix(prefix); err != nil {
		return 0, err
	}
	for found, err := range t.walk(ctx, "sweep", prefix) {
		if err != nil {
			return removed, err
		}
		if !found.info.IsDir() && !found.temporary() || !found.info.ModTime().Before(olderThan) {
			continue
		}
		err := os.Remove(found.path)
		switch {
		case err == nil:
			t.forget(found.path)
			removed++
		case found.info.IsDir() || missing(err):
			// A folder with objects, or another process has removed it.
		default:
			return removed, t.failed("sweep", found.name, err)
		}
	}
	return removed, nil
}

// entry is what walk finds.
type entry struct {
	path string
	// name is that of the object, or of the object that a temporary file was meant for, or of the
	// folder.
	name string
	info fs.FileInfo
}

func (e entry) temporary() bool { return strings.Contains(filepath.Base(e.path), temporaryMark) }

// walk yields the files and folders with names that begin with a prefix, files in the order of
// names, and each folder after what is in it. What disappears meanwhile is left out.
func (t *fileTarget) walk(ctx context.Context, operation, prefix string) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		t.walkFolder(ctx, operation, prefix, "", yield)
	}
}

// walkFolder walks a folder; within is empty, or the folder's name with a slash. It returns false
// if the walk is over.
func (t *fileTarget) walkFolder(
	ctx context.Context, operation, prefix, within string, yield func(entry, error) bool,
) bool {
	if err := ended(ctx, t.String(), operation, prefix); err != nil {
		yield(entry{}, err)
		return false
	}
	files, err := os.ReadDir(t.path(within))
	if err != nil && !missing(err) {
		yield(entry{}, t.failed(operation, within, err))
		return false
	}
	// A folder stands where the names of its objects do: "a/b" is after "a-b" and before "a0".
	slices.SortFunc(files, func(a, b fs.DirEntry) int { return cmp.Compare(sortName(a), sortName(b)) })
	for _, file := range files {
		object, _, _ := strings.Cut(file.Name(), temporaryMark)
		found := entry{path: filepath.Join(t.path(within), file.Name()), name: within + object}
		if CheckName(found.name) != nil || file.IsDir() && found.temporary() {
			continue // not of this package
		}
		if found.info, err = file.Info(); err != nil {
			if missing(err) {
				continue
			}
			yield(entry{}, t.failed(operation, found.name, err))
			return false
		}
		matches := strings.HasPrefix(found.name, prefix)
		if file.IsDir() {
			folder := found.name + "/"
			matches = strings.HasPrefix(folder, prefix)
			if (matches || strings.HasPrefix(prefix, folder)) &&
				!t.walkFolder(ctx, operation, prefix, folder, yield) {
				return false
			}
		}
		if matches && !yield(found, nil) {
			return false
		}
	}
	return true
}

func sortName(file fs.DirEntry) string {
	if file.IsDir() {
		return file.Name() + "/"
	}
	return file.Name()
}

// missing reports whether a file is not there, or would be below one that is no directory.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// failed makes the error of an operation from what the file system says.
func (t *fileTarget) failed(operation, name string, cause error) error {
	f := &failure{target: t.String(), operation: operation, name: name, cause: cause}
	switch {
	case missing(cause) && operation == "get":
		f.class, f.cause = ErrNotFound, nil
	case errors.Is(cause, syscall.ENOSPC), errors.Is(cause, syscall.EDQUOT):
		f.class, f.advice = ErrFull, "make space there, or give another target"
	case errors.Is(cause, fs.ErrPermission), errors.Is(cause, syscall.EROFS):
		f.class, f.advice = ErrRefused, "let the user that runs this program read and write the "+
			"directory"
	case missing(cause):
		f.class, f.advice = ErrRefused, "make the directory above the target, or mount what should "+
			"be there; no object's name may be the folder of another one"
	case errors.Is(cause, syscall.EISDIR), errors.Is(cause, fs.ErrExist):
		f.class, f.advice = ErrRefused, "no object's name may be the folder of another one"
	default:
		f.class = ErrUnavailable
	}
	return f
}
