package authority

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// Table is one of the tables that a State is made of.
type Table int

// The tables. The first has one record, the others one record per name.
const (
	AuthTable Table = iota
	UserTable
	RoleTable
)

// Write is a write of one record of a table.
type Write struct {
	Table Table
	Name  string
	// Record is nil if the record is deleted.
	Record proto.Message
}

// changing is a State under construction.
type changing struct {
	State
	writes []Write
}

// Change returns the State after a change, and the records to write. If the change is refused, or
// has no effect, next is s and writes is empty. err is an Error, or wraps ErrUnknownChange: after
// ErrUnknownChange the command must not be applied at all.
func (s *State) Change(c *storepb.AuthChange) (next *State, writes []Write, err error) {
	n := &changing{State: State{s.record, maps.Clone(s.users), maps.Clone(s.roles)}}
	switch c := c.GetChange().(type) {
	case *storepb.AuthChange_Enable:
		err = n.enable(c.Enable)
	case *storepb.AuthChange_Disable:
		n.disable()
	case *storepb.AuthChange_UserAdd:
		err = n.addUser(c.UserAdd)
	case *storepb.AuthChange_UserDelete:
		err = n.deleteUser(c.UserDelete.GetName())
	case *storepb.AuthChange_UserPassword:
		err = n.changePassword(c.UserPassword)
	case *storepb.AuthChange_GrantRole:
		err = n.grantRole(c.GrantRole)
	case *storepb.AuthChange_RevokeRole:
		err = n.revokeRole(c.RevokeRole)
	case *storepb.AuthChange_RoleAdd:
		err = n.addRole(c.RoleAdd.GetName())
	case *storepb.AuthChange_RoleDelete:
		err = n.deleteRole(c.RoleDelete.GetName())
	case *storepb.AuthChange_GrantPermission:
		err = n.grantPermission(c.GrantPermission)
	case *storepb.AuthChange_RevokePermission:
		err = n.revokePermission(c.RevokePermission)
	case *storepb.AuthChange_GrantKeyspace:
		err = n.grantKeyspace(c.GrantKeyspace)
	case *storepb.AuthChange_RevokeKeyspace:
		err = n.revokeKeyspace(c.RevokeKeyspace)
	default:
		err = fmt.Errorf("%w: %T", ErrUnknownChange, c)
	}
	if err != nil || len(n.writes) == 0 {
		return s, nil, err
	}
	return &n.State, n.writes, nil
}

// nextRevision is the revision that the present change makes.
func (n *changing) nextRevision() uint64 { return n.record.Revision + 1 }

// commit sets the revision to nextRevision.
func (n *changing) commit() {
	n.save(&storepb.AuthRecord{Enabled: n.record.Enabled, Revision: n.nextRevision(),
		Key: n.record.Key})
}

func (n *changing) save(record *storepb.AuthRecord) {
	n.record = record
	n.writes = append(n.writes, Write{Table: AuthTable, Record: record})
}

func (n *changing) saveUser(name string, record *storepb.UserRecord) {
	n.users[name] = &user{record: record}
	n.writes = append(n.writes, Write{UserTable, name, record})
}

func (n *changing) saveRole(name string, record *storepb.RoleRecord) {
	n.roles[name] = record
	n.writes = append(n.writes, Write{RoleTable, name, record})
	for u, of := range n.users {
		if of.has(name) {
			n.users[u] = &user{record: of.record}
		}
	}
}

func (n *changing) enable(c *storepb.AuthEnable) error {
	if err := n.CanEnable(); err != nil || n.record.Enabled {
		return err
	}
	if len(c.GetKey()) < KeyBytes {
		return ErrInvalidManagement
	}
	n.save(&storepb.AuthRecord{Enabled: true, Revision: n.record.Revision, Key: c.Key})
	return nil
}

func (n *changing) disable() {
	if n.record.Enabled {
		n.save(&storepb.AuthRecord{Revision: n.nextRevision()})
	}
}

func (n *changing) addUser(c *storepb.UserAdd) error {
	switch {
	case c.GetName() == "":
		return ErrUserEmpty
	case n.users[c.Name] != nil:
		return ErrUserExists
	}
	record := &storepb.UserRecord{NoPassword: c.NoPassword, Generation: n.nextRevision()}
	if !c.NoPassword {
		record.Hash = c.Hash
	}
	n.saveUser(c.Name, record)
	n.commit()
	return nil
}

func (n *changing) deleteUser(name string) error {
	switch {
	case n.record.Enabled && name == Root:
		return ErrInvalidManagement
	case n.users[name] == nil:
		return ErrUserNotFound
	}
	delete(n.users, name)
	n.writes = append(n.writes, Write{Table: UserTable, Name: name})
	n.commit()
	return nil
}

func (n *changing) changePassword(c *storepb.UserPassword) error {
	u := n.users[c.GetName()]
	if u == nil {
		return ErrUserNotFound
	}
	record := &storepb.UserRecord{NoPassword: u.record.NoPassword, Roles: u.record.Roles,
		Generation: n.nextRevision()}
	if !record.NoPassword {
		record.Hash = c.Hash
	}
	n.saveUser(c.Name, record)
	n.commit()
	return nil
}

// withRoles returns a copy of a user's record with other roles.
func withRoles(r *storepb.UserRecord, roles []string) *storepb.UserRecord {
	return &storepb.UserRecord{Hash: r.Hash, NoPassword: r.NoPassword, Roles: roles,
		Generation: r.Generation}
}

func (n *changing) grantRole(c *storepb.UserRole) error {
	u := n.users[c.GetUser()]
	if u == nil {
		return ErrUserNotFound
	}
	if n.roles[c.Role] == nil && c.Role != Root {
		return ErrRoleNotFound
	}
	at, has := slices.BinarySearch(u.record.Roles, c.Role)
	if has {
		return nil
	}
	n.saveUser(c.User, withRoles(u.record, slices.Insert(slices.Clone(u.record.Roles), at, c.Role)))
	n.commit()
	return nil
}

func (n *changing) revokeRole(c *storepb.UserRole) error {
	if n.record.Enabled && c.GetUser() == Root && c.Role == Root {
		return ErrInvalidManagement
	}
	u := n.users[c.GetUser()]
	switch {
	case u == nil:
		return ErrUserNotFound
	case !u.has(c.Role):
		return ErrRoleNotGranted
	}
	n.saveUser(c.User, withRoles(u.record, without(u.record.Roles, c.Role)))
	n.commit()
	return nil
}

func without(roles []string, role string) []string {
	return slices.DeleteFunc(slices.Clone(roles), func(r string) bool { return r == role })
}

func (n *changing) addRole(name string) error {
	switch {
	case name == "":
		return ErrRoleEmpty
	case n.roles[name] != nil:
		return ErrRoleExists
	}
	n.saveRole(name, &storepb.RoleRecord{})
	n.commit()
	return nil
}

// deleteRole deletes a role, and revokes it from all users.
func (n *changing) deleteRole(name string) error {
	switch {
	case n.record.Enabled && name == Root:
		return ErrInvalidManagement
	case n.roles[name] == nil:
		return ErrRoleNotFound
	}
	delete(n.roles, name)
	n.writes = append(n.writes, Write{Table: RoleTable, Name: name})
	for _, u := range n.Users() {
		if of := n.users[u]; of.has(name) {
			n.saveUser(u, withRoles(of.record, without(of.record.Roles, name)))
		}
	}
	n.commit()
	return nil
}

// grantPermission replaces a permission for the same range, if that is the first permission for its
// key; otherwise it adds the permission. etcd does the same.
func (n *changing) grantPermission(c *storepb.RolePermission) error {
	p := c.GetPermission()
	switch {
	case p == nil:
		return ErrPermissionNotGiven
	case !soundRange(p.Key, p.RangeEnd):
		return ErrInvalidManagement
	case n.roles[c.Role] == nil:
		return ErrRoleNotFound
	}
	role := n.roles[c.Role]
	all := slices.Clone(role.Permissions)
	at, _ := slices.BinarySearchFunc(all, p, compareKeys)
	if at < len(all) && sameRange(all[at], p) {
		all[at] = p
	} else {
		for at < len(all) && bytes.Equal(all[at].Key, p.Key) {
			at++
		}
		all = slices.Insert(all, at, p)
	}
	n.saveRole(c.Role, &storepb.RoleRecord{Permissions: all, Keyspaces: role.Keyspaces})
	n.commit()
	return nil
}

func (n *changing) revokePermission(c *storepb.RolePermission) error {
	role := n.roles[c.GetRole()]
	if role == nil {
		return ErrRoleNotFound
	}
	p := c.Permission
	if p == nil {
		p = &storepb.Permission{}
	}
	left := slices.DeleteFunc(slices.Clone(role.Permissions),
		func(q *storepb.Permission) bool { return sameRange(q, p) })
	if len(left) == len(role.Permissions) {
		return ErrPermissionNotGranted
	}
	n.saveRole(c.Role, &storepb.RoleRecord{Permissions: left, Keyspaces: role.Keyspaces})
	n.commit()
	return nil
}

func compareKeys(a, b *storepb.Permission) int { return bytes.Compare(a.Key, b.Key) }

func sameRange(a, b *storepb.Permission) bool {
	return bytes.Equal(a.Key, b.Key) && bytes.Equal(a.RangeEnd, b.RangeEnd)
}
