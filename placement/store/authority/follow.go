package authority

import (
	"maps"
	"slices"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// Since lists the records in which the State differs from an older one; nil: all records. It serves
// a server that checks clients: the records of users lack the password hashes, and roles lack the
// permissions for the keys of the store itself. A nil Record means a deletion. The record of
// AuthTable is not listed: see Enabled, Revision and Key.
func (s *State) Since(older *State) (writes []Write) {
	if older == nil {
		older = &State{}
	}
	for _, name := range slices.Sorted(maps.Keys(s.users)) {
		r := s.users[name].record
		if o := older.users[name]; o == nil || o.record != r {
			writes = append(writes, Write{UserTable, name, &storepb.UserRecord{Roles: r.Roles,
				NoPassword: r.NoPassword, Generation: r.Generation}})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.roles)) {
		if r := s.roles[name]; older.roles[name] != r {
			writes = append(writes, Write{RoleTable, name, &storepb.RoleRecord{Keyspaces: r.Keyspaces}})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(older.users)) {
		if s.users[name] == nil {
			writes = append(writes, Write{Table: UserTable, Name: name})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(older.roles)) {
		if s.roles[name] == nil {
			writes = append(writes, Write{Table: RoleTable, Name: name})
		}
	}
	return writes
}

// Key signs tokens; not to be changed. It is nil while authentication is not enabled.
func (s *State) Key() []byte { return s.record.Key }
