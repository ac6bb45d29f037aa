package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestReusedBeforeRemoved: Pebble reuses files while it goes on, and removes others in the
// background, some of them late. So a file may be reused while an obsolete one before it is still
// there, and that be removed before the list is written again.
func TestReusedBeforeRemoved(t *testing.T) {
	fs := vfs.NewMem()
	o := Options{FS: fs, Dir: "/log", Logger: slog.New(slog.DiscardHandler)}
	if err := fs.MkdirAll(o.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	guarded := healthFS{FS: fs, g: newDiskHealth(o, kindLog)}
	names, err := openWALNames(guarded, o.Dir, "OPTIONS-000003")
	if err != nil {
		t.Fatal(err)
	}
	defer names.close()
	guarded.g.names = names
	file := func(n int) string { return fmt.Sprintf("/log/%06d.log", n) }
	for n := 5; n <= 7; n++ {
		f, err := guarded.Create(file(n), walCategory)
		if err == nil {
			_, err = f.Write([]byte("record"))
		}
		if err = errors.Join(err, f.SyncData(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string) {
		t.Helper()
		if _, err := checkWALNames(fs, o.Dir, "OPTIONS-000003"); err != nil {
			t.Errorf("a crash %s: %v", when, err)
		}
	}
	check("with all files")
	reused, err := guarded.ReuseForWrite(file(6), file(8), walCategory)
	if err != nil {
		t.Fatal(err)
	}
	check("when 6 was reused and 5 is there")
	if err := guarded.Remove(file(5)); err != nil {
		t.Fatal(err)
	}
	check("when 6 was reused and 5 removed")
	if _, err := reused.Write([]byte("record")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(reused.SyncData(), reused.Close()); err != nil {
		t.Fatal(err)
	}
	check("when 8 was synced")
	if err := fs.Remove(file(7)); err != nil {
		t.Fatal(err)
	}
	if _, err := checkWALNames(fs, o.Dir, "OPTIONS-000003"); err == nil {
		t.Error("7 is gone and not missed")
	}
}
