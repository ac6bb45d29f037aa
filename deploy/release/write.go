package main

import (
	"context"
	"os"
	"path/filepath"
)

// writeAll makes all files of a release. The checksums come last: a folder without them is that of
// a run that failed.
func (r *release) writeAll(ctx context.Context) error {
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	for _, p := range r.platforms {
		if err := r.compile(ctx, p, r.binary(p)); err != nil {
			return err
		}
	}
	if err := r.makeKit(ctx); err != nil {
		return err
	}
	for _, p := range r.platforms {
		if err := r.writeArchive(p); err != nil {
			return err
		}
	}
	if err := r.writePackages(ctx); err != nil {
		return err
	}
	if err := r.writeBill(ctx); err != nil {
		return err
	}
	if err := r.writeRecipe(); err != nil {
		return err
	}
	if err := r.writeNotes(); err != nil {
		return err
	}
	return writeChecksums(r.out)
}

// writeNotes writes the release's section of the changelog to a file of its own. A snapshot has
// none.
func (r *release) writeNotes() error {
	if !r.released() {
		return nil
	}
	v, err := parseVersion(r.describe)
	if err != nil {
		return err
	}
	changelog, err := os.ReadFile(filepath.Join(r.root, changelogFile))
	if err != nil {
		return err
	}
	notes, err := releaseNotes(string(changelog), v)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, r.file("changes.md")), []byte(notes), 0o644)
}
