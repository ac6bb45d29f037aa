package engine

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// versionFile says what the directory holds, in one line: "tidemark state 1".
	versionFile     = "TIDEMARK"
	versionFileTemp = "TIDEMARK.tmp"
	// formatVersion is raised when the engine's data changes so that older programs must not open
	// it. Pebble checks its own format.
	formatVersion = 1
)

// checkVersion refuses a directory that is not ours to open, and marks a new one. The directory
// must be locked.
func checkVersion(fs vfs.FS, dir string, k kind) error {
	name := fs.PathJoin(dir, versionFile)
	f, err := fs.Open(name)
	if isNotExist(err) {
		return writeVersion(fs, dir, k)
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	content, err := io.ReadAll(io.LimitReader(f, 256))
	_ = f.Close()
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	line, complete := strings.CutSuffix(string(content), "\n")
	words := strings.Fields(line)
	if !complete || len(words) != 3 || words[0] != "tidemark" {
		return fmt.Errorf("%w: %s reads %q, want \"tidemark %s %d\"", ErrWrongKind, name, content,
			k, formatVersion)
	}
	version, err := strconv.Atoi(words[2])
	switch {
	case err != nil || version < 1:
		return fmt.Errorf("%w: %s reads %q, want \"tidemark %s %d\"", ErrWrongKind, name, content,
			k, formatVersion)
	case words[1] != string(k):
		return fmt.Errorf("%w: %s is a %s directory, not a %s directory", ErrWrongKind, dir,
			words[1], k)
	case version > formatVersion:
		return fmt.Errorf("%w: %s has format %d, this program knows formats up to %d; start a "+
			"newer program",
			ErrVersion, dir, version, formatVersion)
	}
	return nil
}

// writeVersion marks a new directory. The mark is the first file, so a directory with other files
// and without the mark is not ours.
func writeVersion(fs vfs.FS, dir string, k kind) error {
	names, err := fs.List(dir)
	if err != nil {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	for _, name := range names {
		if name != versionFileTemp && name != "LOCK" && name != "lost+found" {
			return fmt.Errorf("%w: %s has a file %q, but no file %q; choose an empty directory",
				ErrWrongKind, dir, name, versionFile)
		}
	}
	temp := fs.PathJoin(dir, versionFileTemp)
	f, err := fs.Create(temp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("create %s: %w", temp, err)
	}
	_, err = fmt.Fprintf(f, "tidemark %s %d\n", k, formatVersion)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = fs.Rename(temp, fs.PathJoin(dir, versionFile))
	}
	if err == nil {
		err = syncDir(fs, dir)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", temp, err)
	}
	return nil
}

// makeDir creates a directory and those above it such that they survive a crash.
func makeDir(fs vfs.FS, dir string) error {
	var created []string
	for d := dir; ; {
		if _, err := fs.Stat(d); err == nil {
			break
		} else if !isNotExist(err) {
			return err
		}
		created = append(created, d)
		parent := fs.PathDir(d)
		if parent == d {
			break
		}
		d = parent
	}
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, d := range created {
		if err := syncDir(fs, fs.PathDir(d)); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if closeErr := d.Close(); err == nil {
		err = closeErr
	}
	return err
}
