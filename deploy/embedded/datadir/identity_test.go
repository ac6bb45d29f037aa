package datadir

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func write(t *testing.T, fs vfs.FS, path, text string) {
	t.Helper()
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func openTwice(t *testing.T, change func(fs vfs.FS)) error {
	t.Helper()
	fs := vfs.NewMem()
	d, err := Open(fs, "d", func() uint64 { return 7 })
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Join(42), d.BecomeNode(3, "a:1"), d.Close()); err != nil {
		t.Fatal(err)
	}
	change(fs)
	d, err = Open(fs, "d", func() uint64 { return 8 })
	if err != nil {
		return err
	}
	if d.ID != (Identity{Format: Format, Server: 7, Cluster: 42, Node: 3,
		Address: "a:1"}) {
		t.Fatalf("%+v", d.ID)
	}
	err = d.Join(43)
	return errors.Join(err, d.Close())
}

func TestDirectoryKeepsItsIdentity(t *testing.T) {
	err := openTwice(t, func(vfs.FS) {})
	if !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), "belongs to cluster "+
		"000000000000002a") {
		t.Fatalf("another cluster: %v", err)
	}
}

func TestDirectoryThatCannotBeUsed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(fs vfs.FS)
		want   string
	}{
		"newer": {func(fs vfs.FS) {
			write(t, fs, "d/server.json", `{"format":4,"server":"0000000000000007","shape":"new"}`)
		}, "newer version"},
		"damaged": {func(fs vfs.FS) { write(t, fs, "d/server.json", `{"format":1,"ser`) },
			"damaged"},
		"no name": {func(fs vfs.FS) { write(t, fs, "d/server.json", `{"format":1}`) },
			"damaged"},
		"of other files": {func(fs vfs.FS) {
			_ = fs.Remove("d/server.json")
			write(t, fs,
				"d/letter.txt", "dear")
		}, "not a data directory"},
		"in use": {func(fs vfs.FS) {
			if _, err := fs.Lock("d/LOCK"); err != nil {
				t.Fatal(err)
			}
		}, "another process"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := openTwice(t, c.change); !errors.Is(err, ErrUnusable) ||
				!strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v", err)
			}
		})
	}
}

// TestIdentitySurvivesACrash crashes right after each step: what was said to be written is there.
func TestIdentitySurvivesACrash(t *testing.T) {
	fs := vfs.NewCrashableMem()
	d, err := Open(fs, "d", func() uint64 { return 7 })
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func() error{func() error { return nil },
		func() error { return d.Join(42) }, d.BecomeCore, func() error {
			return d.BecomeNode(3,
				"a:1")
		}} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		again, err := Open(fs.CrashClone(vfs.CrashCloneCfg{}), "d",
			func() uint64 { return 8 })
		if err != nil || again.ID != d.ID {
			t.Fatalf("%v: %+v, want %+v", err, again.ID, d.ID)
		}
	}
}
