package main

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

const mainPackage = "./cmd/tidemark"

type platform struct{ os, arch string }

// released are the platforms of a release.
var released = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"},
	{"darwin", "arm64"}}

func (p platform) String() string { return p.os + "_" + p.arch }

// settings are the variables of the go command that say where modules and caches are, and how many
// resources it may use. All others, such as GOFLAGS and GOAMD64, would change what is built.
var settings = []string{"GOPROXY", "GONOPROXY", "GOPRIVATE", "GOSUMDB", "GONOSUMDB", "GOINSECURE",
	"GOAUTH", "GOVCS", "GOPATH", "GOMODCACHE", "GOCACHE"}

// passedOn are further variables, which `go env` does not know or does not complete.
var passedOn = []string{"GOTOOLCHAIN", "GOTMPDIR", "GOCACHEPROG", "GOMAXPROCS", "GOGC",
	"GOMEMLIMIT"}

// goEnvironment returns the environment of the go command: the user's, with nothing in it that
// changes what is built.
func goEnvironment(ctx context.Context, root string) ([]string, error) {
	// GOENV=off below hides what the user has set with `go env -w`, so that it is asked for here.
	answer, err := output(ctx, root, nil, "go", append([]string{"env", "-json"}, settings...)...)
	if err != nil {
		return nil, err
	}
	var values map[string]string
	if err := json.Unmarshal([]byte(answer), &values); err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	env := withoutBuildSettings(os.Environ())
	for _, name := range settings {
		if value := values[name]; value != "" {
			env = append(env, name+"="+value)
		}
	}
	return append(env, "GOENV=off", "GOWORK=off", "CGO_ENABLED=0", "LC_ALL=C", "TZ=UTC"), nil
}

// withoutBuildSettings leaves out the variables of the go command, of C compilers, of the program
// itself, whose help shows them as defaults, and of the tools that make packages.
func withoutBuildSettings(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		if slices.Contains(passedOn, name) || strings.HasPrefix(name, "GOOGLE_") {
			return false
		}
		return strings.HasPrefix(name, "GO") || strings.HasPrefix(name, "CGO_") ||
			strings.HasPrefix(name, "TIDEMARK_") || strings.HasPrefix(name, "NFPM_") ||
			name == "SOURCE_DATE_EPOCH"
	})
}

// compile makes the program for a platform, at a path, and checks what Go has recorded in it.
func (r *release) compile(ctx context.Context, p platform, path string) error {
	r.say("compile " + p.String())
	env := append(slices.Clone(r.env), "GOOS="+p.os, "GOARCH="+p.arch)
	if _, err := output(ctx, r.root, env, "go", "build", "-trimpath", "-buildvcs=true",
		"-mod=readonly", "-ldflags=-s -w -X main.version="+r.describe, "-o", path, mainPackage,
	); err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	if err := r.checkBuild(p, info); err != nil {
		return fmt.Errorf("the binary for %s: %w", p, err)
	}
	r.builds[p] = info
	return nil
}

// checkBuild checks that a binary is what the release says of it, and what `go install` of the
// release makes.
func (r *release) checkBuild(p platform, info *debug.BuildInfo) error {
	recorded := make(map[string]string)
	for _, s := range info.Settings {
		recorded[s.Key] = s.Value
	}
	want := map[string]string{"GOOS": p.os, "GOARCH": p.arch, "CGO_ENABLED": "0", "-trimpath": "true"}
	var errs []error
	switch {
	case !r.released(): // Go records no commit in a worktree, and a snapshot may be made there
	case recorded["vcs.revision"] == "":
		errs = append(errs, errors.New("no commit is recorded by Go: make the release in a clone, "+
			"not in a worktree or an archive"))
	default:
		want["vcs.revision"], want["vcs.modified"] = r.commit, "false"
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if recorded[name] != want[name] {
			errs = append(errs, fmt.Errorf("%s is %q, not %q", name, recorded[name], want[name]))
		}
	}
	// The archives and packages are compressed by this program: one version of Go makes everything.
	if info.GoVersion != runtime.Version() {
		errs = append(errs, fmt.Errorf("it is built with %s, and this program with %s: set "+
			"GOTOOLCHAIN to one of them", info.GoVersion, runtime.Version()))
	}
	if r.released() && info.Main.Version != r.describe {
		errs = append(errs, fmt.Errorf("the go command calls it %s, not %s: another tag is at the "+
			"commit, or the tag does not suit the module", info.Main.Version, r.describe))
	}
	for _, dependency := range info.Deps {
		if dependency.Replace != nil {
			errs = append(errs, fmt.Errorf("go.mod replaces %s: go install refuses such a module",
				dependency.Path))
		}
	}
	return errors.Join(errs...)
}

// binary is where the program for a platform is built.
func (r *release) binary(p platform) string {
	return filepath.Join(r.work, p.String(), "tidemark")
}
