package authority

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// openEnd as a range end stands for all keys from the start on.
var openEnd = []byte{0}

// soundRange reports whether a permission may be granted for a range: one key, a range that is not
// empty, or all keys from a start on.
func soundRange(key, end []byte) bool {
	return len(key) > 0 && (len(end) == 0 || bytes.Equal(end, openEnd) || bytes.Compare(key, end) < 0)
}

// interval are the keys from start on and below end; a nil end means no upper end.
type interval struct{ start, end []byte }

func intervalOf(key, end []byte) interval {
	switch {
	case len(end) == 0:
		return interval{key, append(bytes.Clone(key), 0)}
	case bytes.Equal(end, openEnd):
		return interval{start: key}
	}
	return interval{key, end}
}

func compareEnds(a, b []byte) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return bytes.Compare(a, b)
}

// access are the keys that a user may read and write: ascending intervals that neither overlap nor
// touch. keyspaces has the same for keyspaces, by their ids.
type access struct {
	read, write []interval
	keyspaces   map[uint64]*keyspaceAccess
}

// accessOf joins the permissions of roles.
func accessOf(roles []*storepb.RoleRecord) *access {
	a := &access{}
	for _, role := range roles {
		for _, p := range role.GetPermissions() {
			i := intervalOf(p.Key, p.RangeEnd)
			switch p.Type {
			case storepb.Permission_READ:
				a.read = append(a.read, i)
			case storepb.Permission_WRITE:
				a.write = append(a.write, i)
			case storepb.Permission_READWRITE:
				a.read, a.write = append(a.read, i), append(a.write, i)
			}
		}
	}
	a.read, a.write = join(a.read), join(a.write)
	a.keyspaces = keyspacesOf(roles)
	return a
}

// join orders intervals, and joins intervals that overlap or touch.
func join(all []interval) []interval {
	slices.SortFunc(all, func(a, b interval) int {
		return cmp.Or(bytes.Compare(a.start, b.start), compareEnds(a.end, b.end))
	})
	joined := all[:0]
	for _, i := range all {
		if n := len(joined); n > 0 {
			if last := &joined[n-1]; last.end == nil || bytes.Compare(i.start, last.end) <= 0 {
				if compareEnds(i.end, last.end) > 0 {
					last.end = i.end
				}
				continue
			}
		}
		joined = append(joined, i)
	}
	return joined
}

// covers reports whether intervals contain all keys of a range. For a range that ends at or below
// its start, and so has no keys, the start must be covered, as in etcd.
func covers(all []interval, key, end []byte) bool {
	i := intervalOf(key, end)
	at, found := slices.BinarySearchFunc(all, key,
		func(i interval, key []byte) int { return bytes.Compare(i.start, key) })
	if !found {
		at-- // the last interval that starts at or below key
	}
	return at >= 0 && (all[at].end == nil || bytes.Compare(key, all[at].end) < 0) &&
		compareEnds(i.end, all[at].end) <= 0
}
