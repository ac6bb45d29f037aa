package rolling

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
)

// releases names the releases and their commits, in order, a line each.
//
//go:embed releases.txt
var releases string

// published is a release.
type published struct{ version, commit string }

// line is the syntax of a line of releases.txt.
var line = regexp.MustCompile(`^(v\d+\.\d+\.\d+\S*) ([0-9a-f]{40})$`)

// parse reads a list of releases.
func parse(list string) (all []published, err error) {
	for text := range strings.Lines(list) {
		text = strings.TrimSpace(text)
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		match := line.FindStringSubmatch(text)
		if match == nil {
			return nil, fmt.Errorf("releases.txt: %q is not a version and a commit", text)
		}
		all = append(all, published{version: match[1], commit: match[2]})
	}
	return all, nil
}

// before returns the newest release whose commit is not the given one; false if there is none.
func before(all []published, commit string) (published, bool) {
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].commit != commit {
			return all[i], true
		}
	}
	return published{}, false
}
