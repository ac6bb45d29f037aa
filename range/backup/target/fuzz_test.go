package target

import (
	"path/filepath"
	"strings"
	"testing"
)

// A name that is allowed is a file inside the directory, is not that of a temporary file, and every
// beginning of it is an allowed prefix.
func FuzzCheckName(f *testing.F) {
	for _, name := range []string{
		"a", "a/b", "backups/2026-01-02/pieces/00001", "..", "a/../b", "a//b", "a~b", "/", "", ".a",
		"a/.", "\x00", "é", strings.Repeat("a/", 300),
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if CheckName(name) != nil {
			return
		}
		path := filepath.Join("/root", filepath.FromSlash(name))
		within, err := filepath.Rel("/root", path)
		if err != nil || !filepath.IsLocal(within) || filepath.ToSlash(within) != name {
			t.Errorf("%q is the file %q", name, path)
		}
		if strings.Contains(name, temporaryMark) || len(name) > MaxName || name == "" {
			t.Errorf("%q is allowed", name)
		}
		for i := range len(name) + 1 {
			if err := checkPrefix(name[:i]); err != nil {
				t.Errorf("the beginning %q of %q: %v", name[:i], name, err)
			}
		}
	})
}

// No URL makes Open panic, and the text of a target opens the same target.
func FuzzOpen(f *testing.F) {
	for _, url := range []string{
		"file:///a b/%25", "file://localhost/a/../b", "s3://bucket/a/b?endpoint=http://h:1&region=r",
		"s3://bucket?path-style=true", "s3://k:s@bucket", "s3://bucket/%2e%2e/?endpoint=%zz", "file:x",
	} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		options := Options{Credentials: testCredentials}
		opened, err := Open(t.Context(), url, options)
		if err != nil {
			return
		}
		text := opened.String()
		again, err := Open(t.Context(), text, options)
		if err != nil {
			t.Fatalf("%q is %q: %v", url, text, err)
		}
		if again.String() != text {
			t.Errorf("%q is %q, and that is %q", url, text, again)
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
}
