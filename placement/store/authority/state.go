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
	// Root is the name of the user without whom authentication cannot be enabled, and of the role
	// that may do everything.
	Root = "root"
	// KeyBytes is the least length of the key that signs tokens, in bytes.
	KeyBytes = 32
	// firstRevision is the revision of tables without an entry.
	firstRevision = 1
)

// State is one version of the tables. A State never changes.
type State struct {
	record *storepb.AuthRecord
	users  map[string]*user
	roles  map[string]*storepb.RoleRecord
}

// user is a user with the permissions of its roles. A user is replaced when one of its roles is
// replaced, so a computed access stays valid.
type user struct {
	record *storepb.UserRecord
	access atomic.Pointer[access]
}

// New makes a State of a store's records. record is nil if there is none. New keeps all arguments.
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

// Enabled reports whether authentication is enabled.
func (s *State) Enabled() bool { return s.record.Enabled }

// Revision counts the changes of users and roles, from 1 on. Disabling authentication counts,
// enabling it does not.
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

// Permissions are the permissions of a role, by key; not to be changed. For the role root they are
// those for all keys, whatever was granted to it.
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

// CanEnable returns why authentication cannot be enabled; nil if it can be, or is enabled.
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

// HasRole reports whether a user exists and has a role.
func (s *State) HasRole(name, role string) bool {
	u := s.users[name]
	return u != nil && u.has(role)
}

// Login is the data by which a user authenticates.
type Login struct {
	// Hash is the bcrypt hash of the password; not to be changed.
	Hash []byte
	// NoPassword is set if the user has no password, and needs a certificate.
	NoPassword bool
	// Generation is to be passed to Sign once the password is verified.
	Generation uint64
}

// Login returns the data by which a user authenticates; ok is false if the user does not exist.
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

// ErrUnknownChange means that this version does not know a kind of change.
var ErrUnknownChange = errors.New("a change of users or roles is not known to this version")
