package authority

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

const (
	// Root is the user without whom authentication cannot be enabled, and the role that may do
	// everything.
	Root = "root"
	// KeyBytes is at least how long the key is that signs tokens.
	KeyBytes = 32
	// firstRevision is that of tables without an entry.
	firstRevision = 1
)

// State is one version of the tables. It is never changed.
type State struct {
	record *storepb.AuthRecord
	users  map[string]*user
	roles  map[string]*storepb.RoleRecord
}

// user is a user with what its roles permit. A user is replaced when one of its roles is, so that
// access, once it is known, stays right.
type user struct {
	record *storepb.UserRecord
	access atomic.Pointer[access]
}

// New makes a State of what a store has. record is nil if there is none. It keeps all of them.
func New(
	record *storepb.AuthRecord, users map[string]*storepb.UserRecord,
	roles map[string]*storepb.RoleRecord,
) (*State, error) {
	if record == nil {
		record = &storepb.AuthRecord{Revision: firstRevision}
	}
	if record.Revision < firstRevision || record.Enabled && len(record.Key) < KeyBytes {
		return nil, fmt.Errorf("the record of authentication is malformed: revision %d, a key of %d "+
			"bytes", record.Revision, len(record.Key))
	}
	s := &State{record: record, users: make(map[string]*user, len(users)), roles: roles}
	if s.roles == nil {
		s.roles = map[string]*storepb.RoleRecord{}
	}
	for name, u := range users {
		if !slices.IsSorted(u.Roles) || u.Generation == 0 || u.Generation > record.Revision {
			return nil, fmt.Errorf("the record of user %q is malformed", name)
		}
		s.users[name] = &user{record: u}
	}
	return s, nil
}

// Enabled says whether users and roles count.
func (s *State) Enabled() bool { return s.record.Enabled }

// Revision counts the changes of users and roles, from 1 on. Enabling authentication does not
// count, disabling it does.
func (s *State) Revision() uint64 { return s.record.Revision }

// Users lists the users by name.
func (s *State) Users() []string { return slices.Sorted(maps.Keys(s.users)) }

// Roles lists the roles by name.
func (s *State) Roles() []string { return slices.Sorted(maps.Keys(s.roles)) }

// UserRoles are the roles of a user, ascending; not to be changed.
func (s *State) UserRoles(name string) ([]string, error) {
	u := s.users[name]
	if u == nil {
		return nil, ErrUserNotFound
	}
	return u.record.Roles, nil
}

// Permissions are those of a role, by key; not to be changed. The role root has everything, also if
// something was granted to it.
func (s *State) Permissions(role string) ([]*storepb.Permission, error) {
	r := s.roles[role]
	switch {
	case r == nil:
		return nil, ErrRoleNotFound
	case role == Root:
		return []*storepb.Permission{{Type: storepb.Permission_READWRITE, RangeEnd: openEnd}}, nil
	}
	return r.Permissions, nil
}

// CanEnable says why authentication cannot be enabled; nil if it can be, or is.
func (s *State) CanEnable() error {
	switch root := s.users[Root]; {
	case s.record.Enabled:
		return nil
	case root == nil:
		return ErrRootUserMissing
	case !root.has(Root):
		return ErrRootRoleMissing
	}
	return nil
}

// HasRole says whether there is a user of that name that has a role.
func (s *State) HasRole(name, role string) bool {
	u := s.users[name]
	return u != nil && u.has(role)
}

// Login is what a user can authenticate by.
type Login struct {
	// Hash is that of the password, by bcrypt; not to be changed.
	Hash []byte
	// NoPassword: the user has none, and has to come with a certificate.
	NoPassword bool
	// Generation is for Sign, once the password is known to be right.
	Generation uint64
}

// Login returns what a user can authenticate by; false: there is no such user.
func (s *State) Login(name string) (Login, bool) {
	u := s.users[name]
	if u == nil {
		return Login{}, false
	}
	return Login{u.record.Hash, u.record.NoPassword, u.record.Generation}, true
}

func (u *user) has(role string) bool {
	_, found := slices.BinarySearch(u.record.Roles, role)
	return found
}

// ErrUnknownChange says that a change is none that this version knows.
var ErrUnknownChange = errors.New("a change of users or roles is not known to this version")
