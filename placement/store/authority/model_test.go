package authority

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// model is what a State is to be, told the long way.
type model struct {
	enabled  bool
	revision uint64
	// roles of users, and passwords by the revision that set them
	users     map[string]map[string]bool
	passwords map[string]uint64
	roles     map[string][]*storepb.Permission
}

func (m *model) change(c *storepb.AuthChange) error {
	rename := func() { m.revision++ }
	switch c := c.Change.(type) {
	case *storepb.AuthChange_Enable:
		if m.enabled {
			return nil
		}
		if m.users[Root] == nil {
			return ErrRootUserMissing
		}
		if !m.users[Root][Root] {
			return ErrRootRoleMissing
		}
		m.enabled = true
	case *storepb.AuthChange_Disable:
		if m.enabled {
			m.enabled = false
			rename()
		}
	case *storepb.AuthChange_UserAdd:
		if c.UserAdd.Name == "" {
			return ErrUserEmpty
		}
		if m.users[c.UserAdd.Name] != nil {
			return ErrUserExists
		}
		rename()
		m.users[c.UserAdd.Name], m.passwords[c.UserAdd.Name] = map[string]bool{}, m.revision
	case *storepb.AuthChange_UserDelete:
		if m.enabled && c.UserDelete.Name == Root {
			return ErrInvalidManagement
		}
		if m.users[c.UserDelete.Name] == nil {
			return ErrUserNotFound
		}
		rename()
		delete(m.users, c.UserDelete.Name)
	case *storepb.AuthChange_UserPassword:
		if m.users[c.UserPassword.Name] == nil {
			return ErrUserNotFound
		}
		rename()
		m.passwords[c.UserPassword.Name] = m.revision
	case *storepb.AuthChange_GrantRole:
		roles := m.users[c.GrantRole.User]
		if roles == nil {
			return ErrUserNotFound
		}
		if _, ok := m.roles[c.GrantRole.Role]; !ok && c.GrantRole.Role != Root {
			return ErrRoleNotFound
		}
		if !roles[c.GrantRole.Role] {
			rename()
			roles[c.GrantRole.Role] = true
		}
	case *storepb.AuthChange_RevokeRole:
		if m.enabled && c.RevokeRole.User == Root && c.RevokeRole.Role == Root {
			return ErrInvalidManagement
		}
		roles := m.users[c.RevokeRole.User]
		if roles == nil {
			return ErrUserNotFound
		}
		if !roles[c.RevokeRole.Role] {
			return ErrRoleNotGranted
		}
		rename()
		delete(roles, c.RevokeRole.Role)
	case *storepb.AuthChange_RoleAdd:
		if c.RoleAdd.Name == "" {
			return ErrRoleEmpty
		}
		if _, ok := m.roles[c.RoleAdd.Name]; ok {
			return ErrRoleExists
		}
		rename()
		m.roles[c.RoleAdd.Name] = nil
	case *storepb.AuthChange_RoleDelete:
		if m.enabled && c.RoleDelete.Name == Root {
			return ErrInvalidManagement
		}
		if _, ok := m.roles[c.RoleDelete.Name]; !ok {
			return ErrRoleNotFound
		}
		rename()
		delete(m.roles, c.RoleDelete.Name)
		for _, roles := range m.users {
			delete(roles, c.RoleDelete.Name)
		}
	case *storepb.AuthChange_GrantPermission:
		return m.grant(c.GrantPermission)
	case *storepb.AuthChange_RevokePermission:
		p := c.RevokePermission
		of, ok := m.roles[p.Role]
		if !ok {
			return ErrRoleNotFound
		}
		var left []*storepb.Permission
		for _, q := range of {
			if string(q.Key) != string(p.Permission.Key) ||
				string(q.RangeEnd) != string(p.Permission.RangeEnd) {
				left = append(left, q)
			}
		}
		if len(left) == len(of) {
			return ErrPermissionNotGranted
		}
		rename()
		m.roles[p.Role] = left
	}
	return nil
}

func (m *model) grant(c *storepb.RolePermission) error {
	p := c.Permission
	if p == nil {
		return ErrPermissionNotGiven
	}
	if len(p.Key) == 0 || len(p.RangeEnd) > 0 && string(p.RangeEnd) != "\x00" &&
		string(p.Key) >= string(p.RangeEnd) {
		return ErrInvalidManagement
	}
	of, ok := m.roles[c.Role]
	if !ok {
		return ErrRoleNotFound
	}
	m.revision++
	of = slices.Clone(of)
	for i, q := range of {
		if string(q.Key) == string(p.Key) {
			if string(q.RangeEnd) == string(p.RangeEnd) {
				of[i] = p
				m.roles[c.Role] = of
				return nil
			}
			break // only the first of a key is looked at
		}
	}
	of = append(of, p)
	slices.SortStableFunc(of,
		func(a, b *storepb.Permission) int { return bytes.Compare(a.Key, b.Key) })
	m.roles[c.Role] = of
	return nil
}

func within(k, start, end []byte) bool {
	if len(end) == 0 {
		return bytes.Equal(k, start)
	}
	return bytes.Compare(k, start) >= 0 && (string(end) == "\x00" || bytes.Compare(k, end) < 0)
}

// may looks at every key at which something begins or ends: in between nothing changes.
func (m *model) may(user string, key, end []byte, write bool) bool {
	if m.users[user][Root] {
		return true
	}
	var all []*storepb.Permission
	for role := range m.users[user] {
		for _, p := range m.roles[role] {
			if p.Type == storepb.Permission_READWRITE || (p.Type == storepb.Permission_WRITE) == write {
				all = append(all, p)
			}
		}
	}
	edges := [][]byte{key}
	for _, p := range all {
		edges = append(edges, p.Key, append(bytes.Clone(p.Key), 0), p.RangeEnd)
	}
	for i, k := range edges {
		if len(k) == 0 || i > 0 && !within(k, key, end) {
			continue
		}
		if !slices.ContainsFunc(all,
			func(p *storepb.Permission) bool { return within(k, p.Key, p.RangeEnd) }) {
			return false
		}
	}
	return true
}

var names = rapid.SampledFrom([]string{"", Root, "u", "v", "w"})

func changes() *rapid.Generator[*storepb.AuthChange] {
	key := rapid.Map(rapid.SampledFrom([]string{"", "\x00", "a", "a\x00", "aa", "b", "ba", "c"}),
		func(s string) []byte { return []byte(s) })
	return rapid.Custom(func(t *rapid.T) *storepb.AuthChange {
		name, role := names.Draw(t, "name"), names.Draw(t, "role")
		permission := &storepb.RolePermission{Role: role}
		if rapid.IntRange(0, 20).Draw(t, "given") > 0 {
			permission.Permission = &storepb.Permission{Key: key.Draw(t, "key"),
				RangeEnd: key.Draw(t, "end"),
				Type:     storepb.Permission_Type(rapid.IntRange(0, 2).Draw(t, "type"))}
		}
		user := &storepb.UserRole{User: name, Role: role}
		c := &storepb.AuthChange{}
		switch rapid.IntRange(0, 15).Draw(t, "kind") {
		case 0:
			c.Change = &storepb.AuthChange_Enable{
				Enable: &storepb.AuthEnable{Key: bytes.Repeat([]byte{7}, KeyBytes)}}
		case 1:
			c.Change = &storepb.AuthChange_Disable{Disable: &storepb.AuthDisable{}}
		case 2, 3:
			c.Change = &storepb.AuthChange_UserAdd{UserAdd: &storepb.UserAdd{Name: name}}
		case 4:
			c.Change = &storepb.AuthChange_UserDelete{UserDelete: &storepb.UserDelete{Name: name}}
		case 5:
			c.Change = &storepb.AuthChange_UserPassword{UserPassword: &storepb.UserPassword{Name: name}}
		case 6, 7, 8:
			c.Change = &storepb.AuthChange_GrantRole{GrantRole: user}
		case 9:
			c.Change = &storepb.AuthChange_RevokeRole{RevokeRole: user}
		case 10, 11:
			c.Change = &storepb.AuthChange_RoleAdd{RoleAdd: &storepb.RoleAdd{Name: role}}
		case 12:
			c.Change = &storepb.AuthChange_RoleDelete{RoleDelete: &storepb.RoleDelete{Name: role}}
		case 13:
			if permission.Permission == nil {
				permission.Permission = &storepb.Permission{}
			}
			c.Change = &storepb.AuthChange_RevokePermission{RevokePermission: permission}
		default:
			c.Change = &storepb.AuthChange_GrantPermission{GrantPermission: permission}
		}
		return c
	})
}

// A State is what the model says after any changes, and so is one that is made of what was written.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{revision: 1, users: map[string]map[string]bool{}, passwords: map[string]uint64{},
			roles: map[string][]*storepb.Permission{}}
		s, err := New(nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		tables := newTables()
		for range rapid.IntRange(1, 60).Draw(t, "changes") {
			c := changes().Draw(t, "change")
			before := describe(s)
			next, writes, err := s.Change(c)
			want := m.change(c)
			if !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Fatalf("%v: %v, want %v", c, err, want)
			}
			if describe(s) != before {
				t.Fatalf("%v has changed the State that it was made of", c)
			}
			s = next
			tables.write(t, writes)
			if got := describe(tables.load(t)); got != describe(s) {
				t.Fatalf("%v: written is\n%s\nit is\n%s", c, got, describe(s))
			}
			compareWith(t, s, m)
		}
	})
}

func compareWith(t *rapid.T, s *State, m *model) {
	if s.Enabled() != m.enabled || s.Revision() != m.revision || len(s.Users()) != len(m.users) ||
		len(s.Roles()) != len(m.roles) {
		t.Fatalf("it is %s, want %+v", describe(s), m)
	}
	for user, roles := range m.users {
		got, err := s.UserRoles(user)
		if err != nil || len(got) != len(roles) {
			t.Fatalf("roles of %q: %q, %v, want %v", user, got, err, roles)
		}
		for _, role := range got {
			if !roles[role] || !s.HasRole(user, role) {
				t.Fatalf("%q has role %q", user, role)
			}
		}
		if login, ok := s.Login(user); !ok || login.Generation != m.passwords[user] {
			t.Fatalf("login of %q: %+v, want generation %d", user, login, m.passwords[user])
		}
	}
	for role, want := range m.roles {
		got, err := s.Permissions(role)
		if role != Root && fmt.Sprint(got) != fmt.Sprint(want) || err != nil {
			t.Fatalf("permissions of %q: %v, want %v", role, got, want)
		}
	}
	if !m.enabled {
		return
	}
	keys := rapid.SampledFrom([]string{"\x00", "a", "a\x00", "aa", "ab", "b", "c", "d"})
	ends := rapid.SampledFrom([]string{"", "\x00", "a\x00", "aa", "b", "ba", "c", "d"})
	for range 5 {
		user := names.Draw(t, "user")
		key, end := []byte(keys.Draw(t, "key")), []byte(ends.Draw(t, "end"))
		who := &storepb.AuthInfo{User: user, Revision: s.Revision()}
		if got := s.Read(who, key, end) == nil; got != m.may(user, key, end, false) {
			t.Fatalf("%q may read %q to %q: %v, permissions %v", user, key, end, got, m.roles)
		}
		if got := s.Write(who, key, end) == nil; got != m.may(user, key, end, true) {
			t.Fatalf("%q may write %q to %q: %v, permissions %v", user, key, end, got, m.roles)
		}
	}
}

// tables is what a store keeps.
type tables struct {
	auth  []byte
	users map[string][]byte
	roles map[string][]byte
}

func newTables() *tables {
	return &tables{users: map[string][]byte{}, roles: map[string][]byte{}}
}

func (x *tables) write(t *rapid.T, writes []Write) {
	for _, w := range writes {
		of := map[Table]map[string][]byte{UserTable: x.users, RoleTable: x.roles}[w.Table]
		if w.Record == nil {
			delete(of, w.Name)
			continue
		}
		data, err := proto.Marshal(w.Record)
		if err != nil {
			t.Fatal(err)
		}
		if w.Table == AuthTable {
			x.auth = data
		} else {
			of[w.Name] = data
		}
	}
}

func (x *tables) load(t *rapid.T) *State {
	var record *storepb.AuthRecord
	users, roles := map[string]*storepb.UserRecord{}, map[string]*storepb.RoleRecord{}
	var errs []error
	if x.auth != nil {
		record = &storepb.AuthRecord{}
		errs = append(errs, proto.Unmarshal(x.auth, record))
	}
	for name, data := range x.users {
		users[name] = &storepb.UserRecord{}
		errs = append(errs, proto.Unmarshal(data, users[name]))
	}
	for name, data := range x.roles {
		roles[name] = &storepb.RoleRecord{}
		errs = append(errs, proto.Unmarshal(data, roles[name]))
	}
	s, err := New(record, users, roles)
	if err = errors.Join(append(errs, err)...); err != nil {
		t.Fatal(err)
	}
	return s
}

func describe(s *State) string {
	var b bytes.Buffer
	fmt.Fprintln(&b, s.record.Enabled, s.record.Revision, s.record.Key)
	for _, name := range s.Users() {
		fmt.Fprintf(&b, "%q: %v\n", name, s.users[name].record)
	}
	for _, name := range s.Roles() {
		fmt.Fprintf(&b, "%q: %v\n", name, s.roles[name])
	}
	return b.String()
}
