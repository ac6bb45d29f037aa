package authority

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

func ofKeyspace(
	keyspace uint64, rights uint32, key, end string,
) *storepb.KeyspacePermission {
	return &storepb.KeyspacePermission{Keyspace: keyspace, Rights: rights, Key: []byte(key),
		RangeEnd: []byte(end)}
}

func grantKeyspace(role string, p *storepb.KeyspacePermission) *storepb.AuthChange {
	return &storepb.AuthChange{Change: &storepb.AuthChange_GrantKeyspace{
		GrantKeyspace: &storepb.KeyspaceGrant{Role: role, Permission: p}}}
}

func revokeKeyspace(role string, p *storepb.KeyspacePermission) *storepb.AuthChange {
	return &storepb.AuthChange{Change: &storepb.AuthChange_RevokeKeyspace{
		RevokeKeyspace: &storepb.KeyspaceGrant{Role: role, Permission: p}}}
}

// What cannot be granted or taken back is refused, and changes nothing.
func TestKeyspaceRefusals(t *testing.T) {
	s := after(t, start(t), addRole("r"), grantKeyspace("r", ofKeyspace(7, KeyspaceRead, "a", "b")))
	for _, c := range []struct {
		change *storepb.AuthChange
		want   error
	}{
		{grantKeyspace("none", ofKeyspace(7, KeyspaceRead, "a", "b")), ErrRoleNotFound},
		{grantKeyspace("r", nil), ErrPermissionNotGiven},
		{grantKeyspace("r", ofKeyspace(0, KeyspaceRead, "a", "b")), ErrInvalidManagement},
		{grantKeyspace("r", ofKeyspace(7, 0, "a", "b")), ErrInvalidManagement},
		{grantKeyspace("r", ofKeyspace(7, 8, "a", "b")), ErrInvalidManagement},
		{grantKeyspace("r", ofKeyspace(7, KeyspaceRead, "b", "a")), ErrInvalidManagement},
		{grantKeyspace("r", ofKeyspace(7, KeyspaceRead, "", "a")), ErrInvalidManagement},
		{grantKeyspace("r", ofKeyspace(7, KeyspaceAdmin, "a", "\x00")), ErrInvalidManagement},
		{revokeKeyspace("none", ofKeyspace(7, 0, "a", "b")), ErrRoleNotFound},
		{revokeKeyspace("r", nil), ErrPermissionNotGiven},
		{revokeKeyspace("r", ofKeyspace(7, KeyspaceWrite, "a", "b")), ErrPermissionNotGranted},
		{revokeKeyspace("r", ofKeyspace(8, 0, "a", "b")), ErrPermissionNotGranted},
		{revokeKeyspace("r", ofKeyspace(7, 0, "a", "c")), ErrPermissionNotGranted},
	} {
		next, writes, err := s.Change(c.change)
		if !errors.Is(err, c.want) || next != s || len(writes) > 0 {
			t.Errorf("%v: %v, want %v", c.change, err, c.want)
		}
	}
}

func start(t testing.TB) *State {
	t.Helper()
	s, err := New(nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Permissions for keys of the store itself and for keyspaces do not disturb each other, and a role
// that is deleted and added again has none of either.
func TestKeyspacesBesideKeys(t *testing.T) {
	s := after(t, start(t), addRole("r"), addUser("u"), grantRole("u", "r"),
		grantKeyspace("r", ofKeyspace(7, KeyspaceRead|KeyspaceWrite, "", "\x00")),
		grant("r", storepb.Permission_READ, "a", ""),
		grantKeyspace("r", ofKeyspace(7, KeyspaceAdmin, "", "\x00")))
	if p, err := s.Permissions("r"); err != nil || len(p) != 1 {
		t.Errorf("%v, %v", p, err)
	}
	if p, err := s.KeyspacePermissions("r"); err != nil || len(p) != 1 || p[0].Rights != 7 {
		t.Errorf("%v, %v", p, err)
	}
	if !s.RightsOf("u").May(7, 7, nil, nil) || s.RightsOf("u").May(KeyspaceRead, 8, nil, nil) {
		t.Error("rights are wrong")
	}
	s = after(t, s, &storepb.AuthChange{Change: &storepb.AuthChange_RoleDelete{
		RoleDelete: &storepb.RoleDelete{Name: "r"}}}, addRole("r"), grantRole("u", "r"))
	if s.RightsOf("u").May(KeyspaceRead, 7, nil, nil) {
		t.Error("a role that was deleted has left permissions")
	}
	if s.RightsOf("nobody") != nil {
		t.Error("a user that is not there has rights")
	}
}

// What is permitted is what a search of all permissions says, after any grants and revocations; and
// so says a State that was made of what differs from an earlier one.
func TestKeyspaceRights(t *testing.T) {
	words := rapid.SampledFrom([]string{"", "a", "aa", "ab", "b", "c"})
	rapid.Check(t, func(t *rapid.T) {
		s, _ := New(nil, nil, nil)
		change := func(c *storepb.AuthChange) {
			if next, _, err := s.Change(c); err == nil {
				s = next
			}
		}
		for _, name := range []string{"r", "q"} {
			change(addRole(name))
		}
		change(addUser("u"))
		change(grantRole("u", "r"))
		change(grantRole("u", "q"))
		older := s
		follower := &followed{users: map[string]*storepb.UserRecord{},
			roles: map[string]*storepb.RoleRecord{}}
		follower.take(s.Since(nil))
		for range rapid.IntRange(1, 30).Draw(t, "changes") {
			p := ofKeyspace(uint64(rapid.IntRange(1, 2).Draw(t, "keyspace")),
				uint32(rapid.IntRange(0, 7).Draw(t, "rights")), words.Draw(t, "key"), words.Draw(t, "end"))
			if rapid.Bool().Draw(t, "open") {
				p.RangeEnd = openEnd
			}
			role := rapid.SampledFrom([]string{"r", "q"}).Draw(t, "role")
			if rapid.IntRange(0, 2).Draw(t, "revoke") == 0 {
				change(revokeKeyspace(role, p))
			} else {
				change(grantKeyspace(role, p))
			}
		}
		follower.take(s.Since(older))
		copied, err := New(&storepb.AuthRecord{Revision: s.Revision()}, follower.users, follower.roles)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Since(s)) != 0 {
			t.Fatal("a State differs from itself")
		}
		for range 10 {
			keyspace := uint64(rapid.IntRange(1, 2).Draw(t, "keyspace"))
			rights := uint32(rapid.IntRange(1, 7).Draw(t, "rights"))
			start, end := []byte(words.Draw(t, "start")), []byte(words.Draw(t, "end"))
			if bytes.Compare(start, end) >= 0 {
				end = nil
			}
			want := searched(s, rights, keyspace, start, end)
			if got := s.RightsOf("u").May(rights, keyspace, start, end); got != want {
				t.Fatalf("may %d from %q to %q of %d: %v, want %v", rights, start, end, keyspace, got, want)
			}
			if got := copied.RightsOf("u").May(rights, keyspace, start, end); got != want {
				t.Fatalf("the copy says %v, want %v", got, want)
			}
			one := append(bytes.Clone(start), 0)
			if got := s.RightsOf("u").MayKey(rights, keyspace, start); got !=
				searched(s, rights, keyspace, start, one) {
				t.Fatalf("may %d with %q of %d: %v", rights, start, keyspace, got)
			}
		}
	})
}

// followed are records that were taken from another State.
type followed struct {
	users map[string]*storepb.UserRecord
	roles map[string]*storepb.RoleRecord
}

func (f *followed) take(writes []Write) {
	for _, w := range writes {
		switch record := w.Record.(type) {
		case *storepb.UserRecord:
			f.users[w.Name] = record
		case *storepb.RoleRecord:
			f.roles[w.Name] = record
		case nil:
			delete(f.users, w.Name)
			delete(f.roles, w.Name)
		}
	}
}

// searched looks at each right, and at each key at which something begins or ends.
func searched(s *State, rights uint32, keyspace uint64, start, end []byte) bool {
	var all []*storepb.KeyspacePermission
	for _, role := range []string{"r", "q"} {
		p, _ := s.KeyspacePermissions(role)
		all = append(all, p...)
	}
	points := [][]byte{start}
	for _, p := range all {
		points = append(points, p.Key, append(bytes.Clone(p.Key), 0), p.RangeEnd)
	}
	for _, right := range []uint32{KeyspaceRead, KeyspaceWrite, KeyspaceAdmin} {
		if rights&right == 0 {
			continue
		}
		for _, k := range points {
			if bytes.Compare(k, start) < 0 || end != nil && bytes.Compare(k, end) >= 0 {
				continue
			}
			if !slices.ContainsFunc(all, func(p *storepb.KeyspacePermission) bool {
				whole := len(p.Key) == 0 && string(p.RangeEnd) == "\x00"
				return p.Keyspace == keyspace && p.Rights&right != 0 &&
					(whole || right != KeyspaceAdmin && within(k, p.Key, p.RangeEnd))
			}) {
				return false
			}
		}
	}
	return true
}
