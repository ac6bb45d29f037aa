package main

import (
	"context"
	"fmt"
	"os"
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
