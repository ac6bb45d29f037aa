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
	// before is called before each step of a write, with the path of the file or folder. If it returns
	// an error, the step is not done and fails with that error. It is nil except in tests.
	before func(step, path string) error

	mu struct {
		sync.Mutex
		// durable has the directories that this target has synced into their parent directories. It has
		// at most maxDurable elements.
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

// removeEmpty syncs a directory from which something was removed. If the directory is empty and is
// not the root, removeEmpty removes the directory instead and continues with its parent.
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

// Sweep implements Target. A folder comes after its content, so that a tree of empty folders is
// removed in one pass.
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
			// The folder has objects, or another process has removed it.
		default:
			return removed, t.failed("sweep", found.name, err)
		}
	}
	return removed, nil
}

// entry is a file or folder that walk finds.
type entry struct {
	path string
	// name is the name of an object, of the object that a temporary file was meant for, or of a
	// folder.
	name string
	info fs.FileInfo
}

func (e entry) temporary() bool { return strings.Contains(filepath.Base(e.path), temporaryMark) }

// walk yields the files and folders whose names begin with a prefix. Files come in the order of
// their names, and each folder comes after its content. Files that disappear during the walk are
// left out.
func (t *fileTarget) walk(ctx context.Context, operation, prefix string) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		t.walkFolder(ctx, operation, prefix, "", yield)
	}
}

// walkFolder walks a folder. within is empty, or the folder's name with a slash. It returns false
// if the walk should end.
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
	// A folder is sorted by its name with a slash, as the names of its objects are: "a/b" is after
	// "a-b" and before "a0".
	slices.SortFunc(files, func(a, b fs.DirEntry) int { return cmp.Compare(sortName(a), sortName(b)) })
	for _, file := range files {
		object, _, _ := strings.Cut(file.Name(), temporaryMark)
		found := entry{path: filepath.Join(t.path(within), file.Name()), name: within + object}
		if CheckName(found.name) != nil || file.IsDir() && found.temporary() {
			continue // not a file of this package
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

// missing reports whether a file does not exist, or would be below a file that is no directory.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// failed makes the error of an operation from an error of the file system.
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
