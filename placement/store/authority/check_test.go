package authority

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

var (
	key      = bytes.Repeat([]byte{1}, KeyBytes)
	otherKey = bytes.Repeat([]byte{2}, KeyBytes)
)

func enable(key []byte) *storepb.AuthChange {
	return &storepb.AuthChange{Change: &storepb.AuthChange_Enable{
		Enable: &storepb.AuthEnable{Key: key}}}
}

func disable() *storepb.AuthChange {
	return &storepb.AuthChange{
		Change: &storepb.AuthChange_Disable{Disable: &storepb.AuthDisable{}}}
}

func addUser(name string) *storepb.AuthChange {
	return &storepb.AuthChange{Change: &storepb.AuthChange_UserAdd{
		UserAdd: &storepb.UserAdd{Name: name, Hash: []byte("h")}}}
}

func deleteUser(name string) *storepb.AuthChange {
	return &storepb.AuthChange{Change: &storepb.AuthChange_UserDelete{
		UserDelete: &storepb.UserDelete{Name: name}}}
}

func password(name string) *storepb.AuthChange {
	return &storepb.AuthChange{Change: &storepb.AuthChange_UserPassword{
		UserPassword: &storepb.UserPassword{Name: name, Hash: []byte("i")}}}
}

func addRole(name string) *storepb.AuthChange {
	return &storepb.AuthChange{Change: &storepb.AuthChange_RoleAdd{
		RoleAdd: &storepb.RoleAdd{Name: name}}}
}

func grantRole(user, role string) *storepb.AuthChange {
	return &storepb.AuthChange{Change: &storepb.AuthChange_GrantRole{
		GrantRole: &storepb.UserRole{User: user, Role: role}}}
}

func grant(role string, as storepb.Permission_Type, key, end string) *storepb.AuthChange {
	return &storepb.AuthChange{Change: &storepb.AuthChange_GrantPermission{
		GrantPermission: &storepb.RolePermission{Role: role, Permission: &storepb.Permission{
			Type: as, Key: []byte(key), RangeEnd: []byte(end)}}}}
}

// after is a State after changes, of which each has to succeed.
func after(t testing.TB, s *State, changes ...*storepb.AuthChange) *State {
	t.Helper()
	if s == nil {
		var err error
		if s, err = New(nil, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range changes {
		var err error
		if s, _, err = s.Change(c); err != nil {
			t.Fatalf("%v: %v", c, err)
		}
	}
	return s
}

// enabled has root, and a user u that may read r/ and write w/.
func enabled(t testing.TB) *State {
	return after(t, nil, addUser(Root), grantRole(Root, Root), addUser("u"), addRole("role"),
		grantRole("u", "role"), grant("role", storepb.Permission_READ, "r/", "r0"),
		grant("role", storepb.Permission_WRITE, "w/", "w0"), enable(key))
}

func putOp(key string, lease int64, previous bool) *storepb.Op {
	return &storepb.Op{Op: &storepb.Op_Put{
		Put: &storepb.Put{Key: []byte(key), Lease: lease, Previous: previous}}}
}

func rangeOp(key, end string) *storepb.Op {
	return &storepb.Op{Op: &storepb.Op_Range{
		Range: &storepb.Range{Key: []byte(key), RangeEnd: []byte(end)}}}
}

func deleteOp(key, end string, previous bool) *storepb.Op {
	return &storepb.Op{Op: &storepb.Op_DeleteRange{DeleteRange: &storepb.DeleteRange{
		Key: []byte(key), RangeEnd: []byte(end), Previous: previous}}}
}

func txn(compare []*storepb.Compare, success, failure []*storepb.Op) *storepb.Command {
	return &storepb.Command{Op: &storepb.Command_Txn{
		Txn: &storepb.Txn{Compare: compare, Success: success, Failure: failure}}}
}

func one(op *storepb.Op) *storepb.Command { return txn(nil, []*storepb.Op{op}, nil) }

// Lease 1 has a key that u may write, lease 2 one that it may not.
func attached(lease int64) ([][]byte, error) {
	return map[int64][][]byte{1: {[]byte("w/l")}, 2: {[]byte("x")}}[lease], nil
}

func TestCommands(t *testing.T) {
	s := enabled(t)
	now := s.Revision()
	compares := func(key string) []*storepb.Compare {
		return []*storepb.Compare{{Key: []byte(key)}}
	}
	ops := func(ops ...*storepb.Op) []*storepb.Op { return ops }
	revoke := func(id int64) *storepb.Command {
		return &storepb.Command{Op: &storepb.Command_LeaseRevoke{
			LeaseRevoke: &storepb.LeaseRevoke{Id: id}}}
	}
	nested := func(ops ...*storepb.Op) *storepb.Op {
		return &storepb.Op{Op: &storepb.Op_Txn{Txn: &storepb.Txn{Failure: ops}}}
	}
	leaseGrant := &storepb.Command{Op: &storepb.Command_LeaseGrant{}}
	compact := &storepb.Command{Op: &storepb.Command_Compact{}}
	change := &storepb.Command{Op: &storepb.Command_AuthChange{AuthChange: addUser("x")}}
	for name, c := range map[string]struct {
		user     string
		revision uint64
		command  *storepb.Command
		want     error
	}{
		"put":                        {"u", now, one(putOp("w/a", 0, false)), nil},
		"put elsewhere":              {"u", now, one(putOp("r/a", 0, false)), ErrPermissionDenied},
		"put without a user":         {"", 0, one(putOp("w/a", 0, false)), ErrUserEmpty},
		"put by old rules":           {"u", now - 1, one(putOp("w/a", 0, false)), ErrOldRevision},
		"put of root by old rules":   {Root, now - 1, one(putOp("w/a", 0, false)), ErrOldRevision},
		"put of a stranger":          {"x", now, one(putOp("w/a", 0, false)), ErrPermissionDenied},
		"put of root":                {Root, now, one(putOp("any", 0, true)), nil},
		"put with previous":          {"u", now, one(putOp("w/a", 0, true)), ErrPermissionDenied},
		"put under a lease":          {"u", now, one(putOp("w/a", 1, false)), nil},
		"put under a foreign lease":  {"u", now, one(putOp("w/a", 2, false)), ErrPermissionDenied},
		"put under no lease":         {"u", now, one(putOp("w/a", 3, false)), nil},
		"range":                      {"u", now, one(rangeOp("r/", "r0")), nil},
		"range beyond":               {"u", now, one(rangeOp("r/", "r1")), ErrPermissionDenied},
		"range of all":               {"u", now, one(rangeOp("r/", "\x00")), ErrPermissionDenied},
		"delete":                     {"u", now, one(deleteOp("w/", "w0", false)), nil},
		"delete beyond":              {"u", now, one(deleteOp("w", "w0", false)), ErrPermissionDenied},
		"delete with previous":       {"u", now, one(deleteOp("w/", "w0", true)), ErrPermissionDenied},
		"comparison":                 {"u", now, txn(compares("r/a"), nil, nil), nil},
		"comparison with what is w/": {"u", now, txn(compares("w/a"), nil, nil), ErrPermissionDenied},
		"the branch not taken": {"u", now, txn(nil, nil, ops(putOp("x", 0, false))),
			ErrPermissionDenied},
		"nested": {"u", now, one(nested(putOp("w/a", 0, false), rangeOp("w/a", ""))),
			ErrPermissionDenied},
		"nothing, without a user": {"", 0, txn(nil, nil, nil), nil},
		"lease":                   {"u", now, leaseGrant, nil},
		"lease by old rules":      {"u", now - 1, leaseGrant, nil},
		"lease without a user":    {"", 0, leaseGrant, ErrUserEmpty},
		"revoke":                  {"u", now, revoke(1), nil},
		"revoke a foreign lease":  {"u", now, revoke(2), ErrPermissionDenied},
		"revoke without a user":   {"", 0, revoke(3), ErrUserEmpty},
		"revoke of root":          {Root, now - 1, revoke(2), nil},
		"compact":                 {"u", now, compact, ErrPermissionDenied},
		"compact of root":         {Root, now, compact, nil},
		"change":                  {"u", now, change, ErrPermissionDenied},
		"change without a user":   {"", 0, change, ErrUserEmpty},
		"change of a stranger":    {"x", now, change, ErrUserNotFound},
		"change of root, earlier": {Root, now - 1, change, nil},
		"sessions": {"u", now, &storepb.Command{Op: &storepb.Command_SessionOpen{}},
			ErrPermissionDenied},
	} {
		t.Run(name, func(t *testing.T) {
			c.command.Auth = &storepb.AuthInfo{User: c.user, Revision: c.revision}
			if err := s.Command(c.command, attached); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if err := after(t, s, disable()).Command(c.command, attached); err != nil {
				t.Errorf("with authentication disabled: %v", err)
			}
			c.command.Auth = nil
			if err := s.Command(c.command, attached); err != nil {
				t.Errorf("of the servers: %v", err)
			}
		})
	}
}

func TestErrorsByCode(t *testing.T) {
	for code, e := range byCode {
		if e.Code != code || ErrorOf(code) != error(e) {
			t.Errorf("code %v is %v", code, e)
		}
	}
	if err := ErrorOf(storepb.Code_OK); err != nil {
		t.Error(err)
	}
}

func TestMalformedRecords(t *testing.T) {
	user := func(u *storepb.UserRecord) map[string]*storepb.UserRecord {
		return map[string]*storepb.UserRecord{"u": u}
	}
	for name, c := range map[string]struct {
		record *storepb.AuthRecord
		users  map[string]*storepb.UserRecord
	}{
		"no revision":     {&storepb.AuthRecord{}, nil},
		"no key":          {&storepb.AuthRecord{Revision: 3, Enabled: true}, nil},
		"roles":           {nil, user(&storepb.UserRecord{Generation: 1, Roles: []string{"b", "a"}})},
		"no generation":   {nil, user(&storepb.UserRecord{})},
		"from the future": {nil, user(&storepb.UserRecord{Generation: 2})},
	} {
		if _, err := New(c.record, c.users, nil); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	s := enabled(t)
	if _, _, err := s.Change(&storepb.AuthChange{}); !errors.Is(err, ErrUnknownChange) {
		t.Errorf("a change of nothing: %v", err)
	}
	if _, _, err := after(t, s, disable()).Change(enable(nil)); !errors.Is(err,
		ErrInvalidManagement) {
		t.Errorf("no key: %v", err)
	}
}

// A token is valid for as long as its user has the same password, and authentication stays enabled.
func TestTokens(t *testing.T) {
	s := enabled(t)
	login, _ := s.Login("u")
	issued := time.UnixMilli(1_700_000_000_123)
	text := s.Sign(Token{User: "u", Generation: login.Generation, Index: 77, Issued: issued})
	token, err := ParseToken(text)
	if err != nil || token.User != "u" || token.Index != 77 || !token.Issued.Equal(issued) {
		t.Fatalf("%+v, %v", token, err)
	}
	for name, c := range map[string]struct {
		state *State
		valid bool
	}{
		"as it was":           {s, true},
		"other roles":         {after(t, s, addRole("x"), grantRole("u", "x")), true},
		"another user gone":   {after(t, s, addUser("v"), deleteUser("v")), true},
		"another's password":  {after(t, s, password(Root)), true},
		"deleted":             {after(t, s, deleteUser("u")), false},
		"deleted and added":   {after(t, s, deleteUser("u"), addUser("u")), false},
		"another password":    {after(t, s, password("u")), false},
		"disabled":            {after(t, s, disable()), false},
		"enabled again":       {after(t, s, disable(), enable(otherKey)), false},
		"before there was it": {after(t, nil), false},
	} {
		if err := c.state.Verify(token); (err == nil) != c.valid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.Verify(Token{User: "u", Generation: login.Generation}); err == nil {
		t.Error("a token that was not parsed is valid")
	}
	// No bit of it can be changed.
	for i := range text {
		forged := []byte(text)
		if forged[i]++; i > 0 && forged[i] == text[i-1] {
			forged[i]++
		}
		if token, err := ParseToken(string(forged)); err == nil && s.Verify(token) == nil {
			t.Errorf("%s is valid", forged)
		}
	}
	for _, text := range []string{"", "x", text + "A", text[1:], "root.5",
		string(make([]byte, 1<<20))} {
		if token, err := ParseToken(text); err == nil && s.Verify(token) == nil {
			t.Errorf("%q is valid", text)
		}
	}
}
