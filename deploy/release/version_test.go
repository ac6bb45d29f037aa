package main

import (
	"testing"
	"time"
)

func TestParseVersion(t *testing.T) {
	order := []string{"v0.1.0-rc.1", "v0.1.0-rc.2", "v0.1.0-rc.10", "v0.1.0", "v0.1.1", "v0.2.0",
		"v0.10.0", "v1.0.0-rc.1", "v1.0.0", "v10.0.0"}
	for i, tag := range order {
		v, err := parseVersion(tag)
		if err != nil || v.String() != tag {
			t.Errorf("%s: %s, %v", tag, v, err)
		}
		for j, other := range order {
			w, _ := parseVersion(other)
			if got := v.compare(w); got > 0 != (i > j) || got < 0 != (i < j) {
				t.Errorf("%s and %s: %d", tag, other, got)
			}
		}
	}
	for _, tag := range []string{"", "0.1.0", "v0.1", "v0.1.0.0", "v01.0.0", "v0.1.0-rc",
		"v0.1.0-rc.0", "v0.1.0-beta.1", "v0.1.0+1", "v0.1.0-dirty", "v0.1.0-5-g1a2b3c4",
		"v0.1.9999999", "v0.1.0\n", "1a2b3c4d5e6f"} {
		if v, err := parseVersion(tag); err == nil {
			t.Errorf("%q is %s", tag, v)
		}
	}
}

// The versions of packages sort by the rules of dpkg and rpm like the commits they belong to, and
// have no minus.
func TestPackageVersion(t *testing.T) {
	s := source{commit: "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d",
		when: time.Date(2026, 12, 1, 13, 0, 0, 0, time.FixedZone("", 3600))}
	for describe, want := range map[string]string{
		"v0.1.0":                             "0.1.0",
		"v0.1.0-rc.1":                        "0.1.0~rc.1",
		"v0.1.0-dirty":                       "0.1.0+dirty",
		"v0.1.0-5-g1a2b3c4d5e6f":             "0.1.0+5.g1a2b3c4d5e6f",
		"v0.1.0-5-g1a2b3c4d5e6f-dirty":       "0.1.0+5.g1a2b3c4d5e6f.dirty",
		"v0.1.0-rc.12-5-g1a2b3c4d5e6f-dirty": "0.1.0~rc.12+5.g1a2b3c4d5e6f.dirty",
		"1a2b3c4d5e6f":                       "0~20261201120000.1a2b3c4d5e6f",
		"1a2b3c4d5e6f-dirty":                 "0~20261201120000.1a2b3c4d5e6f+dirty",
		"v2beta":                             "0~20261201120000.1a2b3c4d5e6f",
	} {
		s.describe = describe
		if got := packageVersion(s); got != want {
			t.Errorf("%s: %s, not %s", describe, got, want)
		}
	}
}
