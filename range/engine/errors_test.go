package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// An error that a damaged table gives is one line, which names the file and what is wrong with it
// once.
func TestExplain(t *testing.T) {
	fs := vfs.NewMem()
	options := Options{FS: fs, Dir: "state", CacheBytes: 1 << 20, MemTableBytes: 1 << 20}
	s, err := OpenState(options)
	if err != nil {
		t.Fatal(err)
	}
	b := s.NewBatch()
	key := []byte("some key that is not a version\x00")
	if err := errors.Join(b.Set(key, []byte("value"), nil), s.Commit(b), b.Close(), s.Flush(),
		s.Close()); err != nil {
		t.Fatal(err)
	}
	names, err := fs.List("state")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") {
			content := readFile(t, fs, "state/"+name)
			content[10] ^= 0x10
			writeFile(t, fs, "state/"+name, content)
		}
	}
	if s, err = OpenState(options); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, _, err = s.Get(key)
	if !IsCorruption(err) {
		t.Fatalf("the damage is not noticed: %v", err)
	}
	for _, err := range []error{err, fmt.Errorf("reading: %w", err), errors.Join(err, err)} {
		text := Explain(err)
		if strings.Contains(text, "\n") || strings.Contains(text, "carrier") ||
			strings.Count(text, "checksum") != 1 || !strings.Contains(text, "state/") {
			t.Errorf("%q", text)
		}
	}
	if Explain(nil) != "" || Explain(errors.New("plain")) != "plain" {
		t.Error("an error of another kind is not left as it is")
	}
}

// A table that is cut off, or gone, is damage too.
func TestATableThatIsShortOrGoneIsDamage(t *testing.T) {
	for name, hurt := range map[string]func(t *testing.T, fs vfs.FS, path string){
		"short": func(t *testing.T, fs vfs.FS,
			path string) {
			writeFile(t, fs, path, readFile(t, fs, path)[:50])
		},
		"gone": func(t *testing.T, fs vfs.FS, path string) {
			if err := fs.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			options := Options{FS: fs, Dir: "state", CacheBytes: 1 << 20, MemTableBytes: 1 << 20}
			s, err := OpenState(options)
			if err != nil {
				t.Fatal(err)
			}
			b := s.NewBatch()
			if err := errors.Join(b.Set([]byte("key\x00"), []byte("value"), nil), s.Commit(b),
				b.Close(), s.Flush(), s.Close()); err != nil {
				t.Fatal(err)
			}
			names, err := fs.List("state")
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range names {
				if strings.HasSuffix(file, ".sst") {
					hurt(t, fs, "state/"+file)
				}
			}
			s, err = OpenState(options)
			if err == nil {
				t.Fatal("it opens", s.Close())
			}
			if !IsCorruption(err) ||
				!strings.Contains(err.Error(), ".sst") && !strings.Contains(err.Error(), "0000") {
				t.Errorf("%v", err)
			}
			t.Log(Explain(err))
		})
	}
}
