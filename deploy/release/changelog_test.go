package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func day(text string) time.Time {
	d, err := time.Parse(time.DateOnly, text)
	if err != nil {
		panic(err)
	}
	return d
}

// CHANGELOG.md keeps the rules, and the next release can be made of it.
func TestChangelogOfTheRepository(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("../..", changelogFile))
	if err != nil {
		t.Fatal(err)
	}
	c, err := parseChangelog(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(c.introduction, "docs/releasing.md") {
		t.Error("the introduction does not say where versions are explained")
	}
	next := version{minor: 1}
	if len(c.releases) > 0 {
		next = c.releases[0].version
		next.minor, next.patch, next.candidate = next.minor+1, 0, 0
	}
	if strings.TrimSpace(c.unreleased) == "" {
		return // at the commit of a release
	}
	begun, err := beginRelease(string(text), next, day("2999-01-01"))
	if err != nil {
		t.Fatal(err)
	}
	notes, err := releaseNotes(begun, next)
	if err != nil || strings.TrimSpace(c.unreleased)+"\n" != notes {
		t.Errorf("the notes of %s are not what was unreleased: %v", next, err)
	}
}

func TestChangelogRules(t *testing.T) {
	const head = "# Changelog\n\nAbout it.\n\n## Unreleased\n"
	for name, test := range map[string]struct{ text, want string }{
		"nothing released": {head + "\n- Something.\n", ""},
		"releases": {head + "\n## v0.2.0 - 2026-12-03\n\n- New.\n\n## v0.1.1 - 2026-12-02\n\n- Fix.\n" +
			"\n## v0.1.0 - 2026-12-01\n\n### Added\n\n- All.\n", ""},
		"a late correction of an earlier version": {
			head + "\n## v0.2.0 - 2026-12-03\n\n- New.\n\n## v0.1.1 - 2026-12-09\n\n- Fix.\n", ""},
		"a candidate": {head + "## v0.1.0 - 2026-12-03\n- A.\n## v0.1.0-rc.2 - 2026-12-02\n- B.\n" +
			"## v0.1.0-rc.1 - 2026-12-02\n- C.\n", ""},
		"no unreleased part":   {"# Changelog\n", "CHANGELOG.md has no section ## Unreleased"},
		"two unreleased parts": {head + head, "CHANGELOG.md:10: ## Unreleased is the first section"},
		"a release above":      {"## v0.1.0 - 2026-12-01\n- A.\n" + head, "has to come first"},
		"no date":              {head + "## v0.1.0\n- A.\n", `"## v0.1.0" is not the heading`},
		"no such day": {head + "## v0.1.0 - 2026-02-30\n- A.\n",
			"there is no day 2026-02-30"},
		"no version": {head + "## v0.1 - 2026-12-01\n- A.\n", `"v0.1" is not the version`},
		"an impossible version": {head + "## v0.01.0 - 2026-12-01\n- A.\n",
			`"v0.01.0" is not the version`},
		"another heading": {head + "## Notes\n- A.\n",
			`CHANGELOG.md:6: "## Notes" is not the heading`},
		"an empty release": {head + "## v0.1.0 - 2026-12-01\n\n", "section v0.1.0 is empty"},
		"the same twice": {head + "## v0.1.0 - 2026-12-01\n- A.\n## v0.1.0 - 2026-12-01\n- A.\n",
			"v0.1.0 comes below v0.1.0"},
		"older above newer": {
			head + "## v0.1.9 - 2026-12-01\n- A.\n## v0.1.10 - 2026-12-01\n- A.\n",
			"v0.1.10 comes below v0.1.9"},
		"a candidate above": {
			head + "## v0.1.0-rc.1 - 2026-12-01\n- A.\n## v0.1.0 - 2026-12-01\n- A.\n",
			"v0.1.0 comes below v0.1.0-rc.1"},
		"dates that run back": {
			head + "## v0.1.1 - 2026-12-01\n- A.\n## v0.1.0 - 2026-12-02\n- A.\n",
			"v0.1.0 is dated after v0.1.1"},
	} {
		_, err := parseChangelog(test.text)
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, not %q", name, err, test.want)
		}
	}
}

// A release has its section: the newest, with nothing unreleased above it.
func TestReleaseNeedsItsSection(t *testing.T) {
	const text = "# Changelog\n\n## Unreleased\n\n## v0.2.0 - 2026-12-03\n\n- New.\n\n" +
		"## v0.1.0 - 2026-12-01\n\n### Added\n\n- All.\n"
	notes, err := releaseNotes(text, version{minor: 2})
	if err != nil || notes != "- New.\n" {
		t.Errorf("%q, %v", notes, err)
	}
	for v, want := range map[version]string{
		{minor: 1}:               "has a later section, v0.2.0, above that of v0.1.0",
		{minor: 3}:               "no section for v0.3.0: run make release-changelog VERSION=v0.3.0",
		{minor: 2, candidate: 1}: "no section for v0.2.0-rc.1",
	} {
		if _, err := releaseNotes(text, v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not %q", v, err, want)
		}
	}
	late := strings.Replace(text, unreleased, unreleased+"\n\n- Later.", 1)
	if _, err := releaseNotes(late, version{minor: 2}); err == nil ||
		!strings.Contains(err.Error(), "which v0.2.0 would not mention") {
		t.Errorf("something is left unreleased: %v", err)
	}
}

func TestBeginRelease(t *testing.T) {
	const text = "# Changelog\n\n## Unreleased\n\n### Fixed\n\n- A bug.\n"
	first, err := beginRelease(text, version{minor: 1, candidate: 1}, day("2026-12-01"))
	want := "# Changelog\n\n## Unreleased\n\n## v0.1.0-rc.1 - 2026-12-01\n\n### Fixed\n\n- A bug.\n"
	if err != nil || first != want {
		t.Fatalf("%q, %v", first, err)
	}
	for v, want := range map[version]string{
		{minor: 2}:               "there is nothing to release",
		{minor: 1, candidate: 2}: "there is nothing to release",
	} {
		if _, err := beginRelease(first, v, day("2026-12-02")); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", v, err)
		}
	}
	final, err := beginRelease(first, version{minor: 1}, day("2026-12-02"))
	if err != nil {
		t.Fatal(err)
	}
	if notes, err := releaseNotes(final, version{minor: 1}); err != nil ||
		notes != "- No change since v0.1.0-rc.1.\n" {
		t.Errorf("%q, %v", notes, err)
	}
	more := strings.Replace(final, unreleased, unreleased+"\n\n- More.", 1)
	if _, err := beginRelease(more, version{patch: 9}, day("2026-12-03")); err == nil {
		t.Error("a release below the last one begins")
	}
	if _, err := beginRelease(more, version{minor: 1, patch: 1}, day("2026-12-01")); err == nil {
		t.Error("a release begins on a day before the last one")
	}
}
