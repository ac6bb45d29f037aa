package etcdfile

import (
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/authpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// user takes a user, whose key is the name.
func (s *scan) user(e element) error {
	u := &authpb.User{}
	if err := proto.Unmarshal(e.value, u); err != nil || string(u.Name) != string(e.key) {
		return damaged("user %q is malformed", e.key)
	}
	user := User{Name: string(u.Name), Roles: u.Roles}
	if !u.Options.GetNoPassword() {
		user.Hash = u.Password
	}
	s.Users = append(s.Users, user)
	return nil
}

// role takes a role, whose key is the name.
func (s *scan) role(e element) error {
	r := &authpb.Role{}
	if err := proto.Unmarshal(e.value, r); err != nil || string(r.Name) != string(e.key) {
		return damaged("role %q is malformed", e.key)
	}
	s.Roles = append(s.Roles, Role{Name: string(r.Name), Permissions: r.KeyPermission})
	return nil
}

// grants takes a role's rights to keyspaces. It comes after the roles.
func (s *scan) grants(e element) error {
	r := &storepb.RoleRecord{}
	at, found := slices.BinarySearchFunc(s.Roles, string(e.key),
		func(r Role, name string) int { return strings.Compare(r.Name, name) })
	if err := proto.Unmarshal(e.value, r); err != nil || !found {
		return damaged("what the role %q may do with keyspaces is malformed", e.key)
	}
	s.Roles[at].Keyspaces = r.Keyspaces
	return nil
}
