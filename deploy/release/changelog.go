package main

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

const (
	changelogFile = "CHANGELOG.md"
	unreleased    = "## Unreleased"
)

// changelog is CHANGELOG.md: an introduction, what is not released yet, and the releases from the
// newest to the oldest.
type changelog struct {
	introduction string
	unreleased   string // the text below the heading
	releases     []releaseSection
}

type releaseSection struct {
	version version
	date    time.Time
	text    string // below the heading
}

var releaseHeading = regexp.MustCompile(`^## (v\S+) - ([0-9]{4}-[0-9]{2}-[0-9]{2})$`)

// parseChangelog reads a changelog, and checks its rules: the first section is "## Unreleased", the
// others are "## v0.1.0 - 2026-12-01", from the newest to the oldest, and have text.
func parseChangelog(text string) (changelog, error) {
	var c changelog
	into, began := &c.introduction, false
	number := 0
	for line := range strings.Lines(text) {
		number++
		heading := strings.TrimRight(line, "\r\n")
		switch {
		case !strings.HasPrefix(heading, "## "):
			*into += line
		case heading == unreleased:
			if began {
				return changelog{}, fmt.Errorf("%s:%d: %s is the first section, and there is one",
					changelogFile, number, unreleased)
			}
			into, began = &c.unreleased, true
		default:
			section, err := parseHeading(heading)
			if err == nil && !began {
				err = fmt.Errorf("%s has to come first", unreleased)
			}
			if err == nil && len(c.releases) > 0 {
				err = section.olderThan(c.releases[len(c.releases)-1])
			}
			if err != nil {
				return changelog{}, fmt.Errorf("%s:%d: %w", changelogFile, number, err)
			}
			c.releases = append(c.releases, section)
			into = &c.releases[len(c.releases)-1].text
		}
	}
	if !began {
		return changelog{}, fmt.Errorf("%s has no section %s", changelogFile, unreleased)
	}
	for _, r := range c.releases {
		if strings.TrimSpace(r.text) == "" {
			return changelog{}, fmt.Errorf("%s: section %s is empty", changelogFile, r.version)
		}
	}
	return c, nil
}

func parseHeading(heading string) (releaseSection, error) {
	parts := releaseHeading.FindStringSubmatch(heading)
	if parts == nil {
		return releaseSection{}, fmt.Errorf("%q is not the heading of a release: write "+
			"\"## v0.1.0 - 2026-12-01\"", heading)
	}
	v, err := parseVersion(parts[1])
	if err != nil {
		return releaseSection{}, err
	}
	date, err := time.Parse(time.DateOnly, parts[2])
	if err != nil {
		return releaseSection{}, fmt.Errorf("%s: there is no day %s", v, parts[2])
	}
	return releaseSection{version: v, date: date}, nil
}

func (r releaseSection) olderThan(above releaseSection) error {
	switch {
	case r.version.compare(above.version) >= 0:
		return fmt.Errorf("%s comes below %s: newer releases come first", r.version, above.version)
	case r.date.After(above.date) && r.version.minor == above.version.minor &&
		r.version.major == above.version.major:
		// A correction of an earlier minor version may be released after a later minor version.
		return fmt.Errorf("%s is dated after %s, which follows it", r.version, above.version)
	}
	return nil
}

// releaseNotes returns the section of a release, which has to be the newest. Nothing may be left
// above it: at the commit of a release, all that is done is in the release.
func releaseNotes(text string, v version) (string, error) {
	c, err := parseChangelog(text)
	if err != nil {
		return "", err
	}
	how := fmt.Sprintf("run make release-changelog VERSION=%s, commit, and set the tag there", v)
	for i, r := range c.releases {
		switch {
		case r.version != v:
			continue
		case i > 0:
			return "", fmt.Errorf("%s has a later section, %s, above that of %s", changelogFile,
				c.releases[0].version, v)
		case strings.TrimSpace(c.unreleased) != "":
			return "", fmt.Errorf("%s has entries below %q, which %s would not mention: move them to "+
				"its section", changelogFile, unreleased, v)
		}
		return strings.TrimSpace(r.text) + "\n", nil
	}
	return "", fmt.Errorf("%s has no section for %s: %s", changelogFile, v, how)
}

// beginRelease returns the changelog with the unreleased part as the section of a release.
func beginRelease(text string, v version, day time.Time) (string, error) {
	c, err := parseChangelog(text)
	if err != nil {
		return "", err
	}
	heading := fmt.Sprintf("## %s - %s\n", v, day.Format(time.DateOnly))
	if strings.TrimSpace(c.unreleased) == "" {
		if len(c.releases) == 0 || !c.releases[0].version.candidateFor(v) {
			return "", fmt.Errorf("%s has no entries below %q: there is nothing to release",
				changelogFile, unreleased)
		}
		heading += fmt.Sprintf("\n- No change since %s.\n", c.releases[0].version)
	}
	begun := strings.Replace(text, unreleased+"\n", unreleased+"\n\n"+heading, 1)
	if _, err := releaseNotes(begun, v); err != nil { // such as a version below the last
		return "", err
	}
	return begun, nil
}
