package store

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

var rootInfo = &storepb.AuthInfo{User: authority.Root, Revision: 1}

func changeAuth(c *storepb.AuthChange) *storepb.Command { return ChangeAuth(rootInfo, c) }

func enableAuth() *storepb.Command {
	return changeAuth(&storepb.AuthChange{Change: &storepb.AuthChange_Enable{
		Enable: &storepb.AuthEnable{Key: bytes.Repeat([]byte{7}, authority.KeyBytes)}}})
}

func addUser(name string) *storepb.Command {
	return changeAuth(&storepb.AuthChange{Change: &storepb.AuthChange_UserAdd{
		UserAdd: &storepb.UserAdd{Name: name, Hash: []byte("hash")}}})
}

func addRole(name string) *storepb.Command {
	return changeAuth(&storepb.AuthChange{Change: &storepb.AuthChange_RoleAdd{
		RoleAdd: &storepb.RoleAdd{Name: name}}})
}

func grantRole(user, role string) *storepb.Command {
	return changeAuth(&storepb.AuthChange{Change: &storepb.AuthChange_GrantRole{
		GrantRole: &storepb.UserRole{User: user, Role: role}}})
}

func permission(role, key, end string) *storepb.RolePermission {
	return &storepb.RolePermission{Role: role, Permission: &storepb.Permission{
		Type: storepb.Permission_READWRITE, Key: []byte(key), RangeEnd: []byte(end)}}
}

func grantPermission(role, key, end string) *storepb.Command {
	return changeAuth(&storepb.AuthChange{Change: &storepb.AuthChange_GrantPermission{
		GrantPermission: permission(role, key, end)}})
}

func revokePermission(role, key, end string) *storepb.Command {
	return changeAuth(&storepb.AuthChange{Change: &storepb.AuthChange_RevokePermission{
		RevokePermission: permission(role, key, end)}})
}

// withUsers enables authentication: user u may read and write u/.
func withUsers(t fataler, s *Store) {
	for _, c := range []*storepb.Command{addUser(authority.Root),
		grantRole(authority.Root, authority.Root), addUser("u"), addRole("r"), grantRole("u", "r"),
		grantPermission("r", "u/", "u0"), enableAuth()} {
		do(t, s, c)
	}
}

// as is a command of a user who was let in by the present rules.
func as(s *Store, user string, c *storepb.Command) *storepb.Command {
	c.Auth = &storepb.AuthInfo{User: user, Revision: s.Authority().Revision()}
	return c
}

func refused(t *testing.T, s *Store, c *storepb.Command, want error) {
	t.Helper()
	before := s.Revision()
	if _, err := s.Do(t.Context(), c); !errors.Is(err, want) {
		t.Errorf("%v: %v, want %v", c, err, want)
	}
	if s.Revision() != before {
		t.Errorf("%v was refused and has made a revision", c)
	}
}

func TestCommandsOfUsers(t *testing.T) {
	_, s := one(t, nil)
	anonymous := writes(Put([]byte("any"), nil))
	anonymous.Auth = &storepb.AuthInfo{}
	do(t, s, anonymous)
	withUsers(t, s)
	do(t, s, as(s, "u", writes(Put([]byte("u/a"), nil))))
	refused(t, s, as(s, "u", writes(Put([]byte("v"), nil))), authority.ErrPermissionDenied)
	refused(t, s, as(s, "nobody", writes(Put([]byte("u/a"), nil))), authority.ErrPermissionDenied)
	refused(t, s, anonymous, authority.ErrUserEmpty)
	refused(t, s, as(s, "u", Compact(3)), authority.ErrPermissionDenied)
	refused(t, s, as(s, "u", addUser("x")), authority.ErrPermissionDenied)
	put(t, s, "v", "of the servers")
	// Leases: the keys that are attached decide.
	do(t, s, as(s, "u", Grant(5, 1<<30)))
	do(t, s, as(s, "u", writes(PutLeased([]byte("u/l"), nil, 5))))
	do(t, s, as(s, authority.Root, writes(PutLeased([]byte("w"), nil, 5))))
	refused(t, s, as(s, "u", writes(PutLeased([]byte("u/m"), nil, 5))), authority.ErrPermissionDenied)
	refused(t, s, as(s, "u", Revoke(5)), authority.ErrPermissionDenied)
	do(t, s, as(s, "u", writes(Delete([]byte("u/l")))))
	if keys, err := s.AttachedKeys(5); err != nil || len(keys) != 1 {
		t.Errorf("attached: %q, %v", keys, err)
	}
	do(t, s, as(s, authority.Root, Revoke(5)))
}

// What was let in by older rules is refused by newer ones when its turn comes.
func TestRulesThatChangeMeanwhile(t *testing.T) {
	c, s := one(t, nil)
	withUsers(t, s)
	for name, change := range map[string]*storepb.Command{
		"permission": revokePermission("r", "u/", "u0"),
		"role added": addRole("x"),
		"gone": changeAuth(&storepb.AuthChange{Change: &storepb.AuthChange_UserDelete{
			UserDelete: &storepb.UserDelete{Name: "u"}}}),
	} {
		release, held := make(chan struct{}), make(chan struct{})
		c.setHold(func(cmd *storepb.Command) <-chan struct{} {
			if cmd.GetAuth().GetUser() == "u" {
				close(held)
				return release
			}
			return nil
		})
		done := make(chan error, 1)
		go func() {
			_, err := s.Do(context.Background(), as(s, "u", writes(Put([]byte("u/"+name), nil))))
			done <- err
		}()
		<-held
		do(t, s, change)
		close(release)
		if err := <-done; !errors.Is(err, authority.ErrOldRevision) {
			t.Errorf("%s: %v, want %v", name, err, authority.ErrOldRevision)
		}
		if get(t, s, "u/"+name) != "-" {
			t.Errorf("%s: it took effect", name)
		}
		c.setHold(nil)
	}
}

func TestReadingOfUsers(t *testing.T) {
	_, s := one(t, nil)
	withUsers(t, s)
	put(t, s, "u/a", "1")
	read := func(who *storepb.AuthInfo, key string) error {
		_, release, err := s.ReadTxnAs(t.Context(), who, &storepb.Txn{Success: []*storepb.Op{{
			Op: &storepb.Op_Range{Range: &storepb.Range{Key: []byte(key)}}}}})
		release()
		return err
	}
	now := s.Authority().Revision()
	for _, c := range []struct {
		who  *storepb.AuthInfo
		key  string
		want error
	}{
		{nil, "x", nil},
		{&storepb.AuthInfo{}, "u/a", authority.ErrUserEmpty},
		{&storepb.AuthInfo{User: "u", Revision: now}, "u/a", nil},
		{&storepb.AuthInfo{User: "u", Revision: now - 1}, "u/a", authority.ErrOldRevision},
		{&storepb.AuthInfo{User: "u", Revision: now}, "x", authority.ErrPermissionDenied},
		{&storepb.AuthInfo{User: authority.Root, Revision: now}, "x", nil},
	} {
		if err := read(c.who, c.key); !errors.Is(err, c.want) {
			t.Errorf("%v reads %s: %v, want %v", c.who, c.key, err, c.want)
		}
	}
	// A state that is newer than what this member knows of users and roles is not read by older ones.
	old := s.Authority()
	do(t, s, revokePermission("r", "u/", "u0"))
	s.authority.value.Store(old)
	if err := read(&storepb.AuthInfo{User: "u", Revision: now}, "u/a"); !errors.Is(err,
		authority.ErrOldRevision) {
		t.Errorf("read by rules that are over: %v", err)
	}
}

// Users and roles are in the replicated state: they survive, and a snapshot has them.
func TestUsersInTheState(t *testing.T) {
	c := newCore(t, 2, nil)
	defer c.close()
	c.elect(c.members[0])
	withUsers(t, c.members[0].store)
	fill(t, c.members[0].store)
	want := c.members[0].store.Authority()
	data, index, term := snapshotOf(t, c.members[0].store)
	staged, err := c.members[1].store.StageSnapshot(t.Context(), index, term, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if err := staged.Install(); err != nil {
		t.Fatal(err)
	}
	c.members[1].catchUp()
	same(t, c.members[0].dump(), c.members[1].dump())
	c.elect(nil)
	c.members[0].close()
	c.members[0].open(nil)
	login, _ := want.Login("u")
	token, err := authority.ParseToken(want.Sign(authority.Token{User: "u",
		Generation: login.Generation}))
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range c.members {
		got := m.store.Authority()
		if got == want || !got.Enabled() || got.Revision() != want.Revision() ||
			!got.HasRole("u", "r") {
			t.Errorf("member %d: %v, %d, %q", i, got.Enabled(), got.Revision(), got.Users())
		}
		if err := got.Verify(token); err != nil {
			t.Errorf("a token of another member at member %d: %v", i, err)
		}
	}
}

// A lease that runs out ends by itself, whoever may write its keys.
func TestLeaseRunsOutWithUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, s := one(t, func(c *Config) {
			c.Monotonic = hlc.Monotonic(func() int64 { return int64(time.Since(began)) + 1 })
		})
		withUsers(t, s)
		do(t, s, as(s, "u", Grant(5, 2000)))
		do(t, s, as(s, "u", writes(PutLeased([]byte("u/l"), nil, 5))))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if get(t, s, "u/l") != "-" {
			t.Error("the lease does not end")
		}
	})
}

// A command that comes in at a member that does not lead stays the user's.
func TestUsersElsewhere(t *testing.T) {
	c, _ := linked(t, 3, nil)
	c.elect(c.members[0])
	withUsers(t, c.members[0].store)
	s := c.members[1].store
	c.members[1].catchUp()
	defer c.members[1].keepUp()()
	if _, err := s.Execute(t.Context(), as(s, "u", writes(Put([]byte("u/a"), nil)))); err != nil {
		t.Error(err)
	}
	for key, want := range map[string]error{"v": authority.ErrPermissionDenied} {
		_, err := s.Execute(t.Context(), as(s, "u", writes(Put([]byte(key), nil))))
		if !errors.Is(err, want) {
			t.Errorf("put %s: %v, want %v", key, err, want)
		}
	}
	anonymous := writes(Put([]byte("u/a"), nil))
	anonymous.Auth = &storepb.AuthInfo{}
	if _, err := s.Execute(t.Context(), anonymous); !errors.Is(err, authority.ErrUserEmpty) {
		t.Errorf("put without a user: %v", err)
	}
}

func TestAuthFormats(t *testing.T) {
	for _, c := range []struct {
		command *storepb.Command
		format  byte
	}{
		{addUser("u"), command.AuthFormat},
		{&storepb.Command{Auth: &storepb.AuthInfo{User: "u"}, Op: Compact(5).Op}, command.AuthFormat},
		{&storepb.Command{Auth: &storepb.AuthInfo{}, Op: Compact(5).Op}, command.FirstFormat},
	} {
		data, err := command.Encode(c.command)
		if err != nil || data[0] != c.format {
			t.Errorf("%v has format %d, want %d: %v", c.command, data[0], c.format, err)
		}
	}
	for _, c := range []*storepb.Command{changeAuth(nil), changeAuth(&storepb.AuthChange{}),
		changeAuth(&storepb.AuthChange{Change: &storepb.AuthChange_Enable{}})} {
		if err := command.Validate(c); !errors.Is(err, command.ErrInvalid) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

// A damaged table is not opened, and says what is damaged.
func TestDamagedUsers(t *testing.T) {
	c, s := one(t, nil)
	withUsers(t, s)
	batch := c.members[0].state.NewIndexedBatch()
	defer batch.Close()
	if err := batch.Set(s.Layout.AuthKey(authority.UserTable, "u"), []byte{0xff}, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.members[0].state.Commit(batch); err != nil {
		t.Fatal(err)
	}
	if err := s.load(); err == nil || !strings.Contains(err.Error(), `"u"`) {
		t.Errorf("%v", err)
	}
}
