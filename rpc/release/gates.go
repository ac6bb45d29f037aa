package release

import (
	"cmp"
	"slices"
)

// Gate is a format or message that is used only from a level on. A gate is a variable of this
// package, and is listed in all.
type Gate struct {
	// Name identifies the gate, in lower case with hyphens. It never changes.
	Name string
	// Level is the level that opens the gate.
	Level Level
	// What describes, for operators, what the cluster does when the gate is open.
	What string
}

// CoreAlarms is the gate of commands of the core's stores with the formats 9 and 10.
var CoreAlarms = Gate{Name: "core-alarms", Level: V0_1,
	What: "the coordination store raises alarms (NOSPACE, CORRUPT), is compacted in parts, and " +
		"enables authentication at the end of an import"}

// Quotas is the gate of quotas of keyspaces: servers of earlier releases ignore them.
var Quotas = Gate{Name: "keyspace-quotas", Level: V0_2,
	What: "keyspaces may have quotas of stored bytes, of requests and of bytes a second"}

// all lists every gate.
var all = []Gate{CoreAlarms, Quotas}

// Named returns the gate with a name.
func Named(name string) (Gate, bool) {
	for _, g := range all {
		if g.Name == name {
			return g, true
		}
	}
	return Gate{}, false
}

// Opened returns the gates that are closed at one level and open at another, ordered by level and
// name.
func Opened(from, to Level) []Gate {
	var list []Gate
	for _, g := range all {
		if from < g.Level && g.Level <= to {
			list = append(list, g)
		}
	}
	slices.SortFunc(list, func(a, b Gate) int {
		return cmp.Or(cmp.Compare(a.Level, b.Level), cmp.Compare(a.Name, b.Name))
	})
	return list
}
