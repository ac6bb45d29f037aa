package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository makes a repository with one commit of a changelog, and returns a function that runs
// git there.
func repository(t *testing.T, changelog string) (dir string, git func(args ...string)) {
	t.Helper()
	dir = t.TempDir()
	git = func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		// The user's settings, such as signatures, are not the test's.
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a",
			"GIT_COMMITTER_EMAIL=a@example.com", "GIT_AUTHOR_DATE=2026-12-01T12:00:00+01:00",
			"GIT_COMMITTER_DATE=2026-12-01T12:00:00+01:00")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	writeFile(t, filepath.Join(dir, changelogFile), changelog)
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "first")
	return dir, git
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A release is refused unless the clone is at its tag and unchanged, and the changelog has its
// section.
func TestReleasable(t *testing.T) {
	dir, git := repository(t, "# Changelog\n\n## Unreleased\n\n## v0.1.0 - 2026-12-01\n\n- All.\n")
	t.Chdir(dir)
	ctx := context.Background()
	refused := func(v version, want string) {
		t.Helper()
		s, err := readSource(ctx)
		if err != nil {
			t.Fatal(err)
		}
		err = s.releasable(ctx, v)
		if want == "" && err != nil || want != "" && (err == nil ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, not %q", v, err, want)
		}
	}
	first := version{minor: 1}
	refused(first, "there is no tag v0.1.0")
	git("tag", "v0.1.0")
	refused(first, "")
	git("tag", "-a", "-m", "second", "v0.2.0")
	refused(version{minor: 2}, "CHANGELOG.md has no section for v0.2.0")
	writeFile(t, filepath.Join(dir, "new.txt"), "new\n")
	refused(first, "the clone differs from its commit")
	git("add", ".")
	git("commit", "-q", "-m", "second")
	refused(first, "tag v0.1.0 is commit ")
}

// Versions name the tag, the commits since and whether files were changed; times are the commit's.
func TestReadSource(t *testing.T) {
	dir, git := repository(t, "# Changelog\n")
	if err := os.Mkdir(filepath.Join(dir, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Join(dir, "below"))
	described := func(want func(commit string) string) {
		t.Helper()
		s, err := readSource(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if want := want(s.commit[:commitDigits]); s.describe != want {
			t.Errorf("%s, not %s", s.describe, want)
		}
		if got := s.when.Format("2006-01-02T15:04:05Z07:00"); got != "2026-12-01T11:00:00Z" {
			t.Errorf("the commit is of %s", got)
		}
		if same, err := filepath.EvalSymlinks(dir); err != nil || s.root != same {
			t.Errorf("root %s, not %s: %v", s.root, same, err)
		}
	}
	described(func(commit string) string { return commit })
	writeFile(t, filepath.Join(dir, changelogFile), "# Changes\n")
	described(func(commit string) string { return commit + "-dirty" })
	git("tag", "v0.1.0")
	git("commit", "-q", "-a", "-m", "second")
	described(func(commit string) string { return "v0.1.0-1-g" + commit })
}
