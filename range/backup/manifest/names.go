package manifest

import (
	"fmt"
	"strings"
	"time"
)

// Names of objects in a target.
const (
	// Root is the prefix of all backups.
	Root = "backup/"

	planName     = "plan"
	headName     = "head"
	manifestName = "manifest"
	unitPrefix   = "unit/"
	piecePrefix  = "piece/"

	// Kinds of the sealed objects that contain no records.
	HeadKind         = "head"
	ManifestKind     = "manifest"
	CoordinationKind = "coordination"
	// CoordinationChangesKind is the kind of a Blob with changes.
	CoordinationChangesKind = "coordination-changes"
)

// idLayout is the format of the time in an id, in UTC. Ids in this format sort by time.
const idLayout = "20060102T150405Z"

// NewID returns the id of a backup that begins at a time: the time, and eight random digits. The
// digits distinguish backups of the same second.
func NewID(began time.Time, random uint32) string {
	return fmt.Sprintf("%s-%08x", began.UTC().Format(idLayout), random)
}

// CheckID says what is wrong with an id. The result is empty if the id has the form that NewID
// makes.
func CheckID(id string) string {
	moment, random, found := strings.Cut(id, "-")
	if _, err := time.Parse(idLayout, moment); err == nil && found && len(random) == 8 &&
		strings.Trim(random, "0123456789abcdef") == "" {
		return ""
	}
	return fmt.Sprintf("%q is not the id of a backup; an id looks like %s", id,
		NewID(time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC), 0x1a2b3c4d))
}

// BeganOf returns the time from an id. It is zero if the id is not valid.
func BeganOf(id string) time.Time {
	moment, _, _ := strings.Cut(id, "-")
	began, err := time.Parse(idLayout, moment)
	if err != nil {
		return time.Time{}
	}
	return began
}

// Prefix is the prefix of all objects of a backup.
func Prefix(id string) string { return Root + id + "/" }

// PlanName, HeadName and ManifestName are the names of the objects with the Plan, the Head and the
// Manifest.
func PlanName(id string) string     { return Prefix(id) + planName }
func HeadName(id string) string     { return Prefix(id) + headName }
func ManifestName(id string) string { return Prefix(id) + manifestName }

// UnitsPrefix is the prefix of the objects that UnitName names.
func UnitsPrefix(id string) string { return Prefix(id) + unitPrefix }

// UnitName is the name of the object with the Done of a unit.
func UnitName(id string, unit int) string { return fmt.Sprintf("%s%06d", UnitsPrefix(id), unit) }

// UnitOf returns the number of the unit whose Done has the given name. It returns false if the name
// belongs to another object.
func UnitOf(id, name string) (unit int, ok bool) {
	digits, found := strings.CutPrefix(name, UnitsPrefix(id))
	if !found {
		return 0, false
	}
	if n, err := fmt.Sscanf(digits, "%06d", &unit); n != 1 || err != nil || unit < 0 {
		return 0, false
	}
	return unit, UnitName(id, unit) == name
}

// PiecePrefix is the prefix of all pieces of a backup.
func PiecePrefix(id string) string { return Prefix(id) + piecePrefix }

// PieceName is the name of a piece. attempt is random and differs between the workers that have
// tried the unit, so that no worker overwrites an object of another.
func PieceName(id string, unit int, attempt uint64, number int) string {
	return fmt.Sprintf("%s%06d-%016x-%04d", PiecePrefix(id), unit, attempt, number)
}

// CoordinationName is the name of a part of the coordination store. attempt is random, as in
// PieceName.
func CoordinationName(id string, attempt uint64, part int) string {
	return fmt.Sprintf("%s%016x-%04d", CoordinationPrefix(id), attempt, part)
}

// CoordinationPrefix is the prefix of the objects that CoordinationName names.
func CoordinationPrefix(id string) string { return Prefix(id) + "coordination/" }

// SharedName is the name of the object that proves that all servers reach the same target. attempt
// is random, as in PieceName.
func SharedName(id string, attempt uint64) string {
	return fmt.Sprintf("%sshared-%016x", ProbePrefix(id), attempt)
}

// CheckName is the name that version 0.1 uses instead of SharedName.
func CheckName(id string) string { return Prefix(id) + checkName }

// ProbePrefix is the prefix of the objects with which a target is tried before the backup begins.
func ProbePrefix(id string) string { return Prefix(id) + probeFolder }

const checkName, probeFolder = "check", "probe/"

// IsTrial reports whether an object is one of those with which the target was tried, and no part of
// a backup. A crash may have left the object.
func IsTrial(name string) bool {
	_, rest, ok := IDOf(name)
	return ok && (rest == checkName || strings.HasPrefix(rest, probeFolder))
}

// IDOf returns the id of the backup that an object belongs to, and the rest of the object's name.
// It returns false if the object belongs to no backup.
func IDOf(name string) (id, rest string, ok bool) {
	tail, found := strings.CutPrefix(name, Root)
	if !found {
		return "", "", false
	}
	id, rest, found = strings.Cut(tail, "/")
	return id, rest, found && CheckID(id) == ""
}

// IsHead reports whether an object is the Head of a backup.
func IsHead(name string) bool {
	_, rest, ok := IDOf(name)
	return ok && rest == headName
}
