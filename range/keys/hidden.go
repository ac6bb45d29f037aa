package keys

import "strings"

// hiddenPrefix begins the names of hidden keyspaces. No client can create a keyspace of such a name:
// names of keyspaces have no slash.
const hiddenPrefix = "restore/"

// HiddenName is the name of a keyspace while a restore fills the keyspace. The restore gives the
// keyspace the name `name` at its end.
func HiddenName(restore, name string) string { return hiddenPrefix + restore + "/" + name }

// SplitHiddenName splits what HiddenName returned; false if the name is another one.
func SplitHiddenName(hidden string) (restore, name string, ok bool) {
	rest, ok := strings.CutPrefix(hidden, hiddenPrefix)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "/")
}

// IsHidden reports that a keyspace has a HiddenName: clients find it in lists, and not by its name.
func IsHidden(name string) bool { return strings.HasPrefix(name, hiddenPrefix) }
