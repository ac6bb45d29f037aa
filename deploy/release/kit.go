package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
)

// kit is what belongs to the program on every platform, by its name below the folder of an archive.
type kit map[string][]byte

// makeKit has the program write its manual pages and completions. A binary for another machine
// cannot do that: if none of the binaries is for this machine, one more is built.
func (r *release) makeKit(ctx context.Context) error {
	here := platform{runtime.GOOS, runtime.GOARCH}
	binary := r.binary(here)
	if !slices.Contains(r.platforms, here) {
		if err := r.compile(ctx, here, binary); err != nil {
			return err
		}
		delete(r.builds, here)
	}
	dir := filepath.Join(r.work, "kit")
	if _, err := output(ctx, r.work, r.env, binary, "man", "--dir", dir, "-o", "raw"); err != nil {
		return err
	}
	if err := compressPages(filepath.Join(dir, "man"), filepath.Join(dir, "man.gz")); err != nil {
		return err
	}
	r.kit = make(kit)
	pages, err := filepath.Glob(filepath.Join(dir, "man", "*.1"))
	if err != nil {
		return err
	}
	files := map[string]string{
		"completions/bash/tidemark":      filepath.Join(dir, "completions", "bash", "tidemark"),
		"completions/zsh/_tidemark":      filepath.Join(dir, "completions", "zsh", "_tidemark"),
		"completions/fish/tidemark.fish": filepath.Join(dir, "completions", "fish", "tidemark.fish"),
		"LICENSE":                        filepath.Join(r.root, "LICENSE"),
		"README.md":                      filepath.Join(r.root, "README.md"),
		changelogFile:                    filepath.Join(r.root, changelogFile),
	}
	for _, page := range pages {
		files["man/man1/"+filepath.Base(page)] = page
	}
	for name, path := range files {
		if r.kit[name], err = os.ReadFile(path); err != nil {
			return err
		}
	}
	return nil
}

// compressPages writes the pages of a folder to another one, each compressed, as packages install
// them.
func compressPages(from, to string) error {
	pages, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(from, page.Name()))
		if err != nil {
			return err
		}
		var compressed bytes.Buffer
		w, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, page.Name()+".gz"), compressed.Bytes(),
			0o644); err != nil {
			return err
		}
	}
	return nil
}
