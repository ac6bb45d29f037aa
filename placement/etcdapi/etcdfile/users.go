package etcdfile

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/authpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// authRecords visits the records of users and roles.
func authRecords(e *store.Export, visit func(bucket string, key, value []byte) error) error {
	auth, err := e.Auth()
	if err != nil {
		return err
	}
	enabled := []byte{0}
	if auth.Enabled {
		enabled[0] = 1
	}
	if err := visit("auth", []byte("authEnabled"), enabled); err != nil {
		return err
	}
	if err := visit("auth", []byte("authRevision"),
		binary.BigEndian.AppendUint64(nil, auth.Revision)); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(auth.Users)) {
		record, err := userRecord(name, auth.Users[name])
		if err == nil {
			err = visit("authUsers", []byte(name), record)
		}
		if err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(auth.Roles)) {
		role := auth.Roles[name]
		record, err := roleRecord(name, role)
		if err == nil {
			err = visit("authRoles", []byte(name), record)
		}
		if err == nil && len(role.Keyspaces) > 0 {
			record, err = proto.Marshal(&storepb.RoleRecord{Keyspaces: role.Keyspaces})
			if err == nil {
				err = visit(grantsBucket, []byte(name), record)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

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

// grants takes what a role may do with keyspaces. It comes after the roles.
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
