package main

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// version is that of a release: v0.1.0, or v0.1.0-rc.1, the first candidate for it.
type version struct {
	major, minor, patch int
	candidate           int // 0: not a candidate, but the release itself
}

const versionPattern = `v(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})` +
	`(?:-rc\.([1-9][0-9]{0,5}))?`

var (
	releaseTag = regexp.MustCompile(`^` + versionPattern + `$`)
	// described is what `git describe` prints behind a tag: v0.1.0-5-g1a2b3c4d5e6f-dirty.
	described = regexp.MustCompile(`^(` + versionPattern + `)(-[0-9]+-g[0-9a-f]+)?(-dirty)?$`)
)

func parseVersion(tag string) (version, error) {
	parts := releaseTag.FindStringSubmatch(tag)
	if parts == nil {
		return version{}, fmt.Errorf("%q is not the version of a release: give one such as v0.1.0 "+
			"or v0.1.0-rc.1", tag)
	}
	var numbers [4]int
	for i, digits := range parts[1:] {
		numbers[i], _ = strconv.Atoi(digits) // the candidate may be missing; the others are digits
	}
	return version{numbers[0], numbers[1], numbers[2], numbers[3]}, nil
}

func (v version) String() string {
	text := fmt.Sprintf("v%d.%d.%d", v.major, v.minor, v.patch)
	if v.candidate > 0 {
		text += fmt.Sprintf("-rc.%d", v.candidate)
	}
	return text
}

// compare orders versions by age: a candidate comes before its release.
func (v version) compare(other version) int {
	rank := func(candidate int) int {
		if candidate == 0 {
			return math.MaxInt
		}
		return candidate
	}
	return cmp.Or(cmp.Compare(v.major, other.major), cmp.Compare(v.minor, other.minor),
		cmp.Compare(v.patch, other.patch), cmp.Compare(rank(v.candidate), rank(other.candidate)))
}

// candidateFor says whether v is a candidate for that release.
func (v version) candidateFor(release version) bool {
	if v.candidate == 0 {
		return false
	}
	v.candidate = 0
	return v == release
}

// packageVersion returns the version of a deb or rpm. Such a version begins with a digit and has no
// minus; "~" sorts before the end of the text, and "+" behind it:
//
//	v0.1.0                  0.1.0
//	v0.1.0-rc.1             0.1.0~rc.1
//	v0.1.0-5-g1a2b3c4d5e6f  0.1.0+5.g1a2b3c4d5e6f
//	1a2b3c4d5e6f (no tag)   0~20261201120000.1a2b3c4d5e6f
func packageVersion(s source) string {
	parts := described.FindStringSubmatch(s.describe)
	if parts == nil {
		commit, dirty := s.commit[:min(len(s.commit), commitDigits)], ""
		if strings.HasSuffix(s.describe, "-dirty") {
			dirty = "+dirty"
		}
		return "0~" + s.when.UTC().Format("20060102150405") + "." + commit + dirty
	}
	text := strings.ReplaceAll(strings.TrimPrefix(parts[1], "v"), "-", "~")
	later := strings.Trim(parts[6]+parts[7], "-")
	if later == "" {
		return text
	}
	return text + "+" + strings.ReplaceAll(later, "-", ".")
}
