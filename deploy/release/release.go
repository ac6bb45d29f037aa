package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// release is one run that makes files. Its source and its kind are set by withRelease, the
// platforms and the folder of the results by the command.
type release struct {
	source
	snapshot       bool
	packageVersion string
	env            []string // of programs that are run
	work           string   // a folder that is removed at the end
	platforms      []platform
	out            string
	builds         map[platform]*debug.BuildInfo // set by compile
	kit            kit                           // set by makeKit
}

// withRelease calls a function with a release that has a folder for its work.
func withRelease(ctx context.Context, s source, snapshot bool, do func(*release) error) error {
	env, err := goEnvironment(ctx, s.root)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "tidemark-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	return do(&release{source: s, snapshot: snapshot, packageVersion: packageVersion(s), env: env,
		work: work, builds: make(map[platform]*debug.BuildInfo)})
}

// released says that the files are those of a tag, which has a section in the changelog.
func (r *release) released() bool { return !r.snapshot }

// say reports a step of the release on standard error.
func (r *release) say(step string) {
	if step != "" {
		fmt.Fprintln(os.Stderr, step)
	}
}

// file returns the name of a result: tidemark_0.1.0_linux_amd64.
func (r *release) file(part string) string {
	return "tidemark_" + strings.TrimPrefix(r.describe, "v") + "_" + part
}

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
