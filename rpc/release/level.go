package release

import "fmt"

// Level is the number of a release's set of formats and messages.
type Level uint32

const (
	// Before is the level of clusters that were made before there were levels. Their servers report
	// no levels, and their core has no record.
	Before Level = 0
	// V0_1 is the level of release v0.1.
	V0_1 Level = 1

	// V0_2 is the level of release v0.2.
	V0_2 Level = 2

	// Newest is the level of this program's release.
	Newest = V0_2
	// Tagged is the newest level whose release has a tag: what that release writes never changes
	// (package golden). It is raised in the commit that gets the tag. Either Newest equals Tagged,
	// or Newest is the level after it.
	Tagged = V0_1
)

// newestName is the name of this program's release.
const newestName = "v0.2"

// names holds the names of the levels' releases.
var names = [...]string{Before: "the versions before v0.1", V0_1: "release v0.1",
	V0_2: "release " + newestName}

// Release returns the name of a level's release, as a part of a sentence. It has a name for levels
// of later releases too.
func (l Level) Release() string {
	if l < Level(len(names)) {
		return names[l]
	}
	if l == Newest+1 {
		return "the release after " + newestName
	}
	return fmt.Sprintf("the release %d places after %s", l-Newest, newestName)
}

// String returns the level with its release: "level 1 (release v0.1)".
func (l Level) String() string { return fmt.Sprintf("level %d (%s)", uint32(l), l.Release()) }

// Range is a range of levels that a program supports, both ends included.
type Range struct{ Min, Max Level }

// Supported returns the levels that this program supports.
func Supported() Range { return Range{Newest - 1, Newest} }

// Contains reports whether a program with this range can take part in a cluster at a level.
func (r Range) Contains(l Level) bool { return r.Min <= l && l <= r.Max }

// String returns the range as a part of a sentence: "levels 0 to 1".
func (r Range) String() string {
	if r.Min == r.Max {
		return fmt.Sprintf("level %d", uint32(r.Max))
	}
	return fmt.Sprintf("levels %d to %d", uint32(r.Min), uint32(r.Max))
}

// Refusal returns why a program with this range cannot take part in a cluster at a level, and what
// to do, as a sentence without a full stop; empty: it can take part.
func (r Range) Refusal(cluster Level) string {
	switch {
	case r.Contains(cluster):
		return ""
	case cluster > r.Max:
		return fmt.Sprintf("the upgrade of the cluster to %s was finalised, and this program, of %s, "+
			"supports %s: start a program of %s instead; there is no way back but a backup", cluster,
			r.Max.Release(), r, cluster.Release())
	}
	return fmt.Sprintf("the cluster is at %s, and this program, of %s, supports %s: the two are more "+
		"than one release apart. Start a program of %s instead, upgrade all servers to that release, "+
		"and run `tidemark upgrade finalize`; then start this program", cluster, r.Max.Release(), r,
		(cluster + 1).Release())
}
