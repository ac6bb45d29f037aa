package target

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestFileURLs(t *testing.T) {
	for _, c := range []struct{ url, root, text string }{
		{"file:///backups/tidemark", "/backups/tidemark", "file:///backups/tidemark"},
		{"file://localhost/backups/", "/backups", "file:///backups"},
		{"file:///with%20space/%25/a%3Fb%23c", "/with space/%/a?b#c",
			"file:///with%20space/%25/a%3Fb%23c"},
		{"file:///with space", "/with space", "file:///with%20space"},
		{"file:///a/../b//c", "/b/c", "file:///b/c"},
	} {
		opened, err := Open(t.Context(), c.url, Options{})
		must(t, err)
		if root := opened.(*fileTarget).root; root != c.root || opened.String() != c.text {
			t.Errorf("%s is %s at %s; want %s at %s", c.url, opened, root, c.text, c.root)
		}
	}
	for _, url := range []string{
		"", "/backups", "backups", "file:backups", "file:///", "file://host/backups", "file:///a?b=c",
		"file:///a#b", "file:///a%00b", "file:///%zz", "ftp://host/a", "file:///..",
		"file://user:the-secret-key@localhost/a", "://the-secret-key", "s3://the-access-key:%zz@b/c",
	} {
		_, err := Open(t.Context(), url, Options{})
		wants(t, err, ErrInvalid)
	}
}

// What a crash leaves of a write is no object, and Sweep finds it.
func TestSweep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "backups")
	opened := openDirectory(t, dir)
	ctx := t.Context()
	must(t, opened.Put(ctx, "one/a", []byte("content")))
	must(t, opened.Put(ctx, "two/a", []byte("content")))
	must(t, os.MkdirAll(filepath.Join(dir, "one/empty/deep"), 0o700))
	must(t, os.MkdirAll(filepath.Join(dir, "lost+found/a"), 0o700))
	for _, name := range []string{"one/a~X", "one/b~X", "two/c~X", "d~X", "not of us"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("part"), 0o600))
	}
	if got := names(t, opened, ""); !slices.Equal(got, []string{"one/a", "two/a"}) {
		t.Fatalf("the objects are %q", got)
	}
	_, err := opened.Get(ctx, "one/b")
	wants(t, err, ErrNotFound)
	soon := time.Now().Add(time.Hour)
	for _, c := range []struct {
		prefix    string
		olderThan time.Time
		want      int
	}{
		{"", time.Now().Add(-time.Hour), 0}, {"one/b", soon, 1}, {"one/", soon, 3}, {"", soon, 2},
		{"", soon, 0},
	} {
		removed, err := opened.Sweep(ctx, c.prefix, c.olderThan)
		if must(t, err); removed != c.want {
			t.Errorf("below %q, %d things were removed; want %d", c.prefix, removed, c.want)
		}
	}
	var left []string
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		left = append(left, strings.TrimPrefix(path, dir))
		return err
	}))
	want := []string{"", "/lost+found", "/lost+found/a", "/not of us", "/one", "/one/a", "/two",
		"/two/a"}
	if !slices.Equal(left, want) {
		t.Errorf("left are %q; want %q", left, want)
	}
}

func TestFailedWriteLeavesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "backups")
	opened := openDirectory(t, dir)
	must(t, opened.Put(t.Context(), "a/b", []byte("content")))
	wants(t, opened.Put(t.Context(), "a", []byte("content")), ErrRefused)
	wants(t, opened.Put(t.Context(), "a/b/c", []byte("content")), ErrRefused)
	wants(t, opened.Create(t.Context(), "a/b", []byte("content")), ErrExists)
	if removed, err := opened.Sweep(t.Context(), "", time.Now().Add(time.Hour)); removed != 0 {
		t.Errorf("%d things are left: %v", removed, err)
	}
	if got := names(t, opened, ""); !slices.Equal(got, []string{"a/b"}) {
		t.Errorf("the objects are %q", got)
	}
}

// A directory that should be mounted, and is not, is no empty target.
func TestDirectoryAboveIsMissing(t *testing.T) {
	opened := openDirectory(t, filepath.Join(t.TempDir(), "mount/backups"))
	err := opened.Put(t.Context(), "a/b", []byte("content"))
	wants(t, err, ErrRefused)
	if !strings.Contains(err.Error(), "mount") {
		t.Error(err)
	}
	if got := names(t, opened, ""); len(got) != 0 {
		t.Errorf("the objects are %q", got)
	}
}

func TestErrorsOfFileSystems(t *testing.T) {
	target := openDirectory(t, t.TempDir()).(*fileTarget)
	for errno, class := range map[syscall.Errno]error{
		syscall.ENOSPC: ErrFull, syscall.EDQUOT: ErrFull, syscall.EACCES: ErrRefused,
		syscall.EROFS: ErrRefused, syscall.EIO: ErrUnavailable, syscall.ESTALE: ErrUnavailable,
	} {
		err := target.failed("put", "a/b", &fs.PathError{Op: "write", Path: "p", Err: errno})
		wants(t, err, class)
		wants(t, err, errno)
		if text := err.Error(); !strings.Contains(text, "put a/b") ||
			!strings.Contains(text, target.String()) || !strings.Contains(text, errno.Error()) {
			t.Error(text)
		}
	}
}

// Objects that are overwritten while they are read are the old ones or the new ones.
func TestReadsWhileWriting(t *testing.T) {
	opened := openDirectory(t, t.TempDir())
	content := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i%26)}, 1000+i) }
	must(t, opened.Put(t.Context(), "a", content(0)))
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := range 100 {
			if err := opened.Put(t.Context(), "a", content(i)); err != nil {
				t.Error(err)
			}
		}
	})
	for range 300 {
		got, err := opened.Get(t.Context(), "a")
		must(t, err)
		if !bytes.Equal(got, content(len(got)-1000)) {
			t.Fatalf("%d bytes are mixed", len(got))
		}
	}
	writer.Wait()
}

// A Delete that empties a folder removes it, while a Put makes it.
func TestWritesWhileFoldersGo(t *testing.T) {
	dir := t.TempDir()
	var writers sync.WaitGroup
	for i := range 4 {
		opened := openDirectory(t, dir) // as processes have it
		writers.Go(func() {
			name := fmt.Sprintf("deep/folder/%d", i)
			for range 50 {
				err := errors.Join(opened.Create(t.Context(), name, []byte("x")),
					opened.Put(t.Context(), name, []byte("y")), opened.Delete(t.Context(), name))
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	if left, err := os.ReadDir(dir); len(left) != 0 || err != nil {
		t.Errorf("%v is left: %v", left, err)
	}
}
