package etcdapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/crypto/bcrypt"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/passwords"
	"github.com/tidemarkdb/tidemark/range/group"
)

// steps is a clock that goes on when a test says so.
type steps struct {
	sync.Mutex
	now time.Time
}

func (s *steps) Now() time.Time {
	s.Lock()
	defer s.Unlock()
	return s.now
}

func (s *steps) step(d time.Duration) {
	s.Lock()
	defer s.Unlock()
	s.now = s.now.Add(d)
}

// written is a log that tests read.
type written struct {
	sync.Mutex
	bytes.Buffer
}

func (w *written) Write(b []byte) (int, error) {
	w.Lock()
	defer w.Unlock()
	return w.Buffer.Write(b)
}

// lines are the audited lines, and forget them.
func (w *written) lines(t *testing.T) (all []map[string]any) {
	t.Helper()
	w.Lock()
	defer w.Unlock()
	for line := range strings.Lines(w.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		if fields["audit"] == true {
			all = append(all, fields)
		}
	}
	w.Reset()
	return all
}

// guarded is the API with a root, whose password is "secret", and a user u, whose password is "pw",
// that may read and write u/.
type guarded struct {
	*served
	clock *steps
	log   *written
}

func serveUsers(t *testing.T, change func(*Config)) *guarded {
	t.Helper()
	g := &guarded{clock: &steps{now: time.Now()}, log: &written{}}
	g.served = serve(t, func(c *Config) {
		c.Passwords, c.Now = passwords.Config{Cost: bcrypt.MinCost}, g.clock.Now
		c.Logger = slog.New(slog.NewJSONHandler(g.log, nil))
		if change != nil {
			change(c)
		}
	})
	ctx := t.Context()
	steps := []error{}
	step := func(_ any, err error) { steps = append(steps, err) }
	step(g.UserAdd(ctx, "root", "secret"))
	step(g.UserGrantRole(ctx, "root", "root"))
	step(g.UserAdd(ctx, "u", "pw"))
	step(g.RoleAdd(ctx, "r"))
	step(g.UserGrantRole(ctx, "u", "r"))
	step(g.RoleGrantPermission(ctx, "r", "u/", "u0", clientv3.PermissionType(clientv3.PermReadWrite)))
	step(g.AuthEnable(ctx))
	if err := errors.Join(steps...); err != nil {
		t.Fatal(err)
	}
	g.log.lines(t)
	return g
}

// as is a client that has logged in.
func (g *guarded) as(t *testing.T, name, password string) *clientv3.Client {
	t.Helper()
	return dialAs(t, g.address, name, password)
}

func dialAs(t *testing.T, address, name, password string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, Logger: zap.NewNop(),
		DialTimeout: 10 * time.Second, Username: name, Password: password})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// withToken does a request with a token.
func (g *guarded) withToken(t *testing.T, token string, request *pb.RangeRequest) error {
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(t.Context(), rpctypes.TokenFieldNameGRPC, token)
	_, err := connect(t, g.address).call(ctx, request)
	return err
}

func (g *guarded) token(t *testing.T, name, password string) string {
	t.Helper()
	answer, err := g.Authenticate(t.Context(), name, password)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Token
}

// An unmodified client with a user and a password.
func TestClientOfUser(t *testing.T) {
	g := serveUsers(t, nil)
	ctx := t.Context()
	u, root := g.as(t, "u", "pw"), g.as(t, "root", "secret")
	if _, err := u.Put(ctx, "u/a", "1"); err != nil {
		t.Error(err)
	}
	if got, err := u.Get(ctx, "u/", clientv3.WithPrefix()); err != nil || got.Count != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := u.Put(ctx, "v", "1"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Error(err)
	}
	if _, err := u.Get(ctx, "", clientv3.WithPrefix()); !errors.Is(err,
		rpctypes.ErrPermissionDenied) {
		t.Error(err)
	}
	if _, err := g.Get(ctx, "u/a"); !errors.Is(err, rpctypes.ErrUserEmpty) {
		t.Errorf("without a user: %v", err)
	}
	if _, err := root.Put(ctx, "v", "1"); err != nil {
		t.Error(err)
	}
	if _, err := clientv3.New(clientv3.Config{Endpoints: []string{g.address}, Logger: zap.NewNop(),
		Username: "u", Password: "wrong", DialTimeout: 10 * time.Second}); !errors.Is(err,
		rpctypes.ErrAuthFailed) {
		t.Errorf("a wrong password: %v", err)
	}
	// A client notices nothing of its token's end, and follows a changed role at once.
	g.clock.step(time.Hour)
	if _, err := u.Put(ctx, "u/a", "2"); err != nil {
		t.Errorf("after the token's end: %v", err)
	}
	if _, err := root.RoleRevokePermission(ctx, "r", "u/", "u0"); err != nil {
		t.Fatal(err)
	}
	if _, err := u.Put(ctx, "u/a", "3"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("after the permission was taken back: %v", err)
	}
	if _, err := root.AuthDisable(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Put(ctx, "any", "1"); err != nil {
		t.Errorf("with authentication disabled: %v", err)
	}
}

// Leases and watches of an unmodified client.
func TestLeasesOfUser(t *testing.T) {
	g := serveUsers(t, nil)
	ctx := t.Context()
	u, root := g.as(t, "u", "pw"), g.as(t, "root", "secret")
	lease, err := u.Grant(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.Put(ctx, "u/l", "", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	if _, err := u.KeepAliveOnce(ctx, lease.ID); err != nil {
		t.Error(err)
	}
	if _, err := u.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys()); err != nil {
		t.Error(err)
	}
	if _, err := root.Put(ctx, "v", "", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	denied := rpctypes.ErrPermissionDenied
	if _, err := u.KeepAliveOnce(ctx, lease.ID); !errors.Is(err, denied) {
		t.Errorf("keep alive: %v", err)
	}
	if _, err := u.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys()); !errors.Is(err, denied) {
		t.Errorf("time to live: %v", err)
	}
	if _, err := u.TimeToLive(ctx, lease.ID); err != nil {
		t.Errorf("time to live without keys: %v", err)
	}
	if _, err := u.Revoke(ctx, lease.ID); !errors.Is(err, denied) {
		t.Errorf("revoke: %v", err)
	}
	for key, want := range map[string]error{"u/": nil, "v": denied} {
		watch := <-u.Watch(ctx, key, clientv3.WithCreatedNotify())
		if (watch.Err() == nil) != (want == nil) || want != nil &&
			!strings.Contains(watch.Err().Error(), rpctypes.ErrorDesc(want)) {
			t.Errorf("watch of %s: %v", key, watch.Err())
		}
	}
	if _, err := root.Revoke(ctx, lease.ID); err != nil {
		t.Error(err)
	}
}

// A user sees the leases with keys all of which the user may read. Leases without keys, and all
// others, only administrators see. Leases come by when they run out.
func TestLeasesThatAUserSees(t *testing.T) {
	g := serveUsers(t, nil)
	ctx := t.Context()
	root, u := g.as(t, "root", "secret"), g.as(t, "u", "pw")
	if _, err := root.UserAdd(ctx, "idle", "pw"); err != nil {
		t.Fatal(err)
	}
	idle := g.as(t, "idle", "pw")
	for id, l := range map[int64]struct {
		seconds int64
		keys    []string
	}{
		1: {500, []string{"u/1"}},
		2: {100, []string{"u/2", "u/22"}},
		3: {300, nil},
		4: {400, []string{"other"}},
		5: {200, []string{"u/5", "v"}},
	} {
		if _, err := pb.NewLeaseClient(root.ActiveConnection()).LeaseGrant(ctx,
			&pb.LeaseGrantRequest{ID: id, TTL: l.seconds}); err != nil {
			t.Fatal(err)
		}
		for _, key := range l.keys {
			if _, err := root.Put(ctx, key, "", clientv3.WithLease(clientv3.LeaseID(id))); err != nil {
				t.Fatal(err)
			}
		}
	}
	sees := func(who string, client *clientv3.Client, want ...clientv3.LeaseID) {
		t.Helper()
		r, err := client.Leases(ctx)
		if err != nil {
			t.Fatalf("%s: %v", who, err)
		}
		var got []clientv3.LeaseID
		for _, l := range r.Leases {
			got = append(got, l.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s sees the leases %v, want %v", who, got, want)
		}
	}
	sees("an administrator", root, 2, 5, 3, 4, 1)
	sees("a user", u, 2, 1)
	sees("a user without a role", idle)
	if _, err := g.Leases(ctx); !errors.Is(err, rpctypes.ErrUserEmpty) {
		t.Errorf("nobody: %v", err)
	}
	if _, err := root.KeepAliveOnce(ctx, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := root.Delete(ctx, "v"); err != nil {
		t.Fatal(err)
	}
	sees("a user, when a key has gone", u, 2, 5, 1)
}

// A token ends with its user, with the password, with authentication, and when it is not used; and
// not before.
func TestTokenEnds(t *testing.T) {
	request := &pb.RangeRequest{Key: []byte("u/a")}
	for name, c := range map[string]struct {
		then  func(t *testing.T, g *guarded, root *clientv3.Client, token string) error
		valid bool
	}{
		"user deleted": {func(t *testing.T, _ *guarded, root *clientv3.Client, _ string) error {
			_, err := root.UserDelete(t.Context(), "u")
			return err
		}, false},
		"user deleted and added": {
			func(t *testing.T, _ *guarded, root *clientv3.Client, _ string) error {
				_, err := root.UserDelete(t.Context(), "u")
				_, again := root.UserAdd(t.Context(), "u", "pw")
				return errors.Join(err, again)
			}, false},
		"password changed": {func(t *testing.T, _ *guarded, root *clientv3.Client, _ string) error {
			_, err := root.UserChangePassword(t.Context(), "u", "other")
			return err
		}, false},
		"authentication enabled again": {
			func(t *testing.T, g *guarded, root *clientv3.Client, _ string) error {
				_, err := root.AuthDisable(t.Context())
				_, again := g.AuthEnable(t.Context())
				return errors.Join(err, again)
			}, false},
		"not used": {func(_ *testing.T, g *guarded, _ *clientv3.Client, _ string) error {
			g.clock.step(5*time.Minute + time.Second)
			return nil
		}, false},
		"used": {func(t *testing.T, g *guarded, _ *clientv3.Client, token string) error {
			for range 5 {
				g.clock.step(4 * time.Minute)
				if err := g.withToken(t, token, request); err != nil {
					return err
				}
			}
			return nil
		}, true},
		"another role": {func(t *testing.T, _ *guarded, root *clientv3.Client, _ string) error {
			_, err := root.UserGrantRole(t.Context(), "u", "root")
			return err
		}, true},
		"made by a clock of the future": {
			func(_ *testing.T, g *guarded, _ *clientv3.Client, _ string) error {
				g.clock.step(-6 * time.Minute)
				return nil
			}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := serveUsers(t, nil)
			root := g.as(t, "root", "secret")
			token := g.token(t, "u", "pw")
			if err := c.then(t, g, root, token); err != nil {
				t.Fatal(err)
			}
			err := g.withToken(t, token, request)
			if c.valid && err != nil || !c.valid && status.Code(err) != codes.Unauthenticated {
				t.Errorf("the token: %v", err)
			}
		})
	}
}

// Every member verifies the tokens of every other, without asking it, and one that is behind waits
// until it knows the user.
func TestTokensAtAnotherMember(t *testing.T) {
	g := serveUsers(t, nil)
	other := serve(t, func(c *Config) { c.Passwords = passwords.Config{Cost: bcrypt.MinCost} })
	other.lone.follow(t, g.lone)
	token := g.token(t, "u", "pw")
	at := &guarded{served: other}
	if err := at.withToken(t, token, &pb.RangeRequest{Key: []byte("u/a")}); err != nil {
		t.Errorf("a token of another member: %v", err)
	}
	if err := at.withToken(t, token, &pb.RangeRequest{Key: []byte("v")}); status.Code(err) !=
		codes.PermissionDenied {
		t.Errorf("what the user may not read: %v", err)
	}
	if err := at.withToken(t, token+"x", &pb.RangeRequest{Key: []byte("u/a")}); status.Code(err) !=
		codes.Unauthenticated {
		t.Errorf("no token: %v", err)
	}
}

func TestAudit(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	g := serveUsers(t, func(c *Config) { c.Registerer = registry })
	ctx := t.Context()
	u, root := g.as(t, "u", "pw"), g.as(t, "root", "secret")
	ignore := func(any, error) {}
	for name, c := range map[string]struct {
		do   func()
		want map[string]any
	}{
		"permission": {func() { ignore(u.Put(ctx, "v", "hidden")) }, map[string]any{
			"outcome": "refused", "user": "u", "key": "v", "method": "/etcdserverpb.KV/Put",
			"level": "WARN"}},
		"nobody": {func() { ignore(g.Get(ctx, "u/a")) }, map[string]any{
			"outcome": "refused", "user": "", "key": "u/a"}},
		"password": {func() { ignore(g.Authenticate(ctx, "u", "guessed")) }, map[string]any{
			"outcome": "refused", "user": "u", "method": "/etcdserverpb.Auth/Authenticate"}},
		"token": {func() {
			_ = g.withToken(t, "forged", &pb.RangeRequest{Key: []byte("u/a")})
		}, map[string]any{"outcome": "refused", "error": "etcdserver: invalid auth token"}},
		"user": {func() { ignore(root.UserAdd(ctx, "new", "hidden")) }, map[string]any{
			"outcome": "done", "user": "root", "of": "new", "level": "INFO"}},
		"user again": {func() { ignore(root.UserAdd(ctx, "u", "hidden")) }, map[string]any{
			"outcome": "failed", "user": "root", "of": "u"}},
		"user by another": {func() { ignore(u.UserAdd(ctx, "x", "hidden")) }, map[string]any{
			"outcome": "refused", "user": "u", "of": "x"}},
		"watch": {func() { <-u.Watch(ctx, "v") }, map[string]any{"outcome": "refused", "user": "u",
			"key": "v", "method": pb.Watch_Watch_FullMethodName}},
	} {
		g.log.lines(t)
		c.do()
		lines := g.log.lines(t)
		if len(lines) != 1 {
			t.Errorf("%s: %v", name, lines)
			continue
		}
		for key, want := range c.want {
			if lines[0][key] != want {
				t.Errorf("%s: %s is %v, want %v", name, key, lines[0][key], want)
			}
		}
		text, _ := json.Marshal(lines[0])
		if lines[0]["address"] == nil || bytes.Contains(text, []byte("hidden")) ||
			bytes.Contains(text, []byte("guessed")) || bytes.Contains(text, []byte("forged")) {
			t.Errorf("%s: %s", name, text)
		}
	}
	if _, err := u.Put(ctx, "u/a", ""); err != nil || len(g.log.lines(t)) > 0 {
		t.Errorf("what is permitted is audited, or is not permitted: %v", err)
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 3 {
		t.Errorf("metrics: %v, %v", families, err)
	}
	g.services.Close()
	if families, err := registry.Gather(); err != nil || len(families) != 0 {
		t.Errorf("metrics after the end: %v, %v", families, err)
	}
}

// Passwords of users that there are not are compared, too, and only so many wait.
func TestGuessing(t *testing.T) {
	g := serveUsers(t, nil)
	for name, password := range map[string]string{"u": "x", "nobody": "x", "": "", "root": ""} {
		if _, err := g.Authenticate(t.Context(), name, password); !errors.Is(err,
			rpctypes.ErrAuthFailed) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := g.UserAdd(t.Context(), "x", strings.Repeat("x", 80)); !errors.Is(err,
		rpctypes.ErrUserEmpty) {
		t.Errorf("a password of a stranger was hashed: %v", err)
	}
	root := g.as(t, "root", "secret")
	if _, err := root.UserAdd(t.Context(), "x", strings.Repeat("x", 80)); err == nil ||
		!strings.Contains(err.Error(), "72 bytes") {
		t.Errorf("a long password: %v", err)
	}
	if _, err := root.UserAddWithOptions(t.Context(), "n", "",
		&clientv3.UserAddOptions{NoPassword: true}); err != nil {
		t.Error(err)
	}
	if _, err := g.Authenticate(t.Context(), "n", "x"); err == nil ||
		!strings.Contains(err.Error(), "no password user") {
		t.Errorf("a password of a user that has none: %v", err)
	}
}

// What keeps a member from being up to date keeps it from refusing.
func TestRefusalNeedsALeader(t *testing.T) {
	g := serveUsers(t, nil)
	token := g.token(t, "u", "pw")
	g.lone.setLeads(t, false)
	ctx := metadata.AppendToOutgoingContext(t.Context(), rpctypes.TokenFieldNameGRPC, token)
	e := connect(t, g.address)
	if _, err := e.call(ctx, &pb.RangeRequest{Key: []byte("u/a"), Serializable: true}); err != nil {
		t.Errorf("what the user may read: %v", err)
	}
	short, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := e.call(short, &pb.HashKVRequest{}); !errors.Is(err, rpctypes.ErrGRPCNoLeader) {
		t.Errorf("what only the newest rules say: %v", err)
	}
}

// follow has a member become one of another's group, and catch up with it.
func (m *lone) follow(t *testing.T, of *lone) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	of.mu.Lock()
	defer of.mu.Unlock()
	var data bytes.Buffer
	snapshot, err := of.Store.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	if err := snapshot.Write(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	staged, err := m.Store.StageSnapshot(t.Context(), snapshot.Index(), snapshot.Term(), &data)
	if err != nil {
		t.Fatal(err)
	}
	if err := staged.Install(); err != nil {
		t.Fatal(err)
	}
	m.index = snapshot.Index()
	m.term = max(m.term, of.term)
	m.Store.LeadershipChanged(group.Leadership{Term: m.term, Leader: 1, IsLeader: true})
	if err := m.appendLocked(nil); err != nil {
		t.Fatal(err)
	}
}
