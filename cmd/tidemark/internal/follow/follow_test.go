package follow

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func put(t *testing.T, f *File, text string) {
	t.Helper()
	if _, err := f.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

// What was written after the last mark is cut off by the next process, and nothing before.
func TestGoesOnAtTheMark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "changes")
	f, _, ok, err := Open(path, "things", "")
	if err != nil || ok {
		t.Fatalf("a new file: %t, %v", ok, err)
	}
	put(t, f, "one\n")
	put(t, f, "two\n")
	if err := f.Mark("7"); err != nil {
		t.Fatal(err)
	}
	put(t, f, "three\n")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got := content(t, path); got != "one\ntwo\nthree\n" {
		t.Fatalf("the file is %q", got)
	}
	f, at, ok, err := Open(path, "things", "")
	if err != nil || !ok || at.Timestamp != "7" || at.Bytes != 8 {
		t.Fatalf("it goes on at %+v, %t, %v", at, ok, err)
	}
	put(t, f, "3\n")
	if err := f.Mark("8"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if got := content(t, path); got != "one\ntwo\n3\n" {
		t.Fatalf("the file is %q", got)
	}
}

// A process that was killed before its first mark leaves a file that none can tell from another's.
func TestRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "changes")
	refused := func(words, keyspace, of string) {
		t.Helper()
		if _, _, _, err := Open(path, keyspace, of); err == nil ||
			!strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q in it", err, words)
		}
	}
	if err := os.WriteFile(path, []byte("mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("is not there", "things", "")
	if got := content(t, path); got != "mine\n" {
		t.Fatalf("the file is %q", got)
	}
	os.Remove(path)
	f, _, _, err := Open(path, "things", "prefix a")
	if err != nil {
		t.Fatal(err)
	}
	put(t, f, "one\n")
	if err := f.Mark("7"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	refused("give another file", "others", "prefix a")
	refused("give another file", "things", "")
	if err := os.Truncate(path, 2); err != nil {
		t.Fatal(err)
	}
	refused("something was lost", "things", "prefix a")
	for _, bad := range []string{"", "{}", `{"timestamp":"7","bytes":-1}`} {
		if err := os.WriteFile(path+".position", []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		refused("is not a position", "things", "prefix a")
	}
}

// Two processes do not follow into one file: the second is refused, and changes nothing.
func TestOneFollowsAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "changes")
	first, _, _, err := Open(path, "things", "")
	if err != nil {
		t.Fatal(err)
	}
	put(t, first, "one\n")
	if err := first.Mark("7"); err != nil {
		t.Fatal(err)
	}
	put(t, first, "two\n")
	if err := first.out.Flush(); err != nil { // behind the position: what Open would cut off
		t.Fatal(err)
	}
	second, _, _, err := Open(path, "things", "")
	if err == nil || !strings.Contains(err.Error(), "another process follows into "+path) {
		t.Errorf("%v", err)
	}
	if err == nil {
		second.Close()
	}
	if got := content(t, path); got != "one\ntwo\n" {
		t.Errorf("the file is %q", got)
	}
	first.Close()
	third, _, ok, err := Open(path, "things", "")
	if err != nil || !ok {
		t.Fatalf("%t, %v", ok, err)
	}
	third.Close()
}
