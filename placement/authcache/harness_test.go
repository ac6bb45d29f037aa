package authcache

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// core has users and roles, and tells them as a member of the core does.
type core struct {
	t  testing.TB
	mu sync.Mutex
	// state and index change together; changed is closed then.
	state   *authority.State
	index   uint64
	changed chan struct{}
	// cut: no stream begins, and those that there are do nothing. stalled is closed when it ends.
	cut     bool
	asked   int // how many asks have come
	stalled chan struct{}
}

func newCore(t testing.TB) *core {
	state, err := authority.New(nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &core{t: t, state: state, index: 1, changed: make(chan struct{}),
		stalled: make(chan struct{})}
}

func (c *core) change(changes ...*storepb.AuthChange) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, change := range changes {
		next, _, err := c.state.Change(change)
		if err != nil {
			c.t.Fatal(err)
		}
		c.state = next
		c.index++
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *core) setCut(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut && !cut {
		close(c.stalled)
		c.stalled = make(chan struct{})
	}
	c.cut = cut
}

var errCut = errors.New("cut off")

// FollowAuthority implements Source.
func (c *core) FollowAuthority(ctx context.Context, asks <-chan uint64,
	take func(*clusterpb.AuthorityUpdate) error) error {
	c.mu.Lock()
	cut := c.cut
	c.mu.Unlock()
	if cut {
		return errCut
	}
	var told *authority.State
	answered := uint64(0)
	for {
		var changed chan struct{}
		if told != nil {
			c.mu.Lock()
			changed = c.changed
			if c.state != told {
				changed = make(chan struct{})
				close(changed)
			}
			c.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case answered = <-asks:
			c.mu.Lock()
			c.asked++
			c.mu.Unlock()
		case <-changed:
		}
		c.mu.Lock()
		for c.cut {
			stalled := c.stalled
			c.mu.Unlock()
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-stalled:
			}
			c.mu.Lock()
		}
		state, index := c.state, c.index
		c.mu.Unlock()
		for _, u := range updates(c.t, told, state, index, answered) {
			if err := take(u); err != nil {
				return err
			}
		}
		told = state
	}
}

// updates are messages of one record each.
func updates(t testing.TB, older, state *authority.State, index, answers uint64,
) (all []*clusterpb.AuthorityUpdate) {
	for _, w := range state.Since(older) {
		r := &clusterpb.AuthorityRecord{Name: w.Name}
		if w.Record != nil {
			data, err := proto.Marshal(w.Record)
			if err != nil {
				t.Fatal(err)
			}
			r.Record = append([]byte{}, data...)
		}
		u := &clusterpb.AuthorityUpdate{More: true}
		if w.Table == authority.UserTable {
			u.Users = append(u.Users, r)
		} else {
			u.Roles = append(u.Roles, r)
		}
		all = append(all, u)
	}
	return append(all, &clusterpb.AuthorityUpdate{Answers: answers, Index: index,
		Enabled: state.Enabled(), Revision: state.Revision(), Key: state.Key()})
}

// token is one for a user, as a member of the core makes it now.
func (c *core) token(user string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	login, _ := c.state.Login(user)
	return c.state.Sign(authority.Token{User: user, Generation: login.Generation, Index: c.index,
		Issued: time.Now()})
}

func key(b byte) []byte {
	k := make([]byte, authority.KeyBytes)
	k[0] = b
	return k
}

func enable(b byte) *storepb.AuthChange {
	return &storepb.AuthChange{Change: &storepb.AuthChange_Enable{
		Enable: &storepb.AuthEnable{Key: key(b)}}}
}

func disable() *storepb.AuthChange {
	return &storepb.AuthChange{
		Change: &storepb.AuthChange_Disable{Disable: &storepb.AuthDisable{}}}
}

func addUser(name string) *storepb.AuthChange {
	return &storepb.AuthChange{Change: &storepb.AuthChange_UserAdd{
		UserAdd: &storepb.UserAdd{Name: name}}}
}

func deleteUser(name string) *storepb.AuthChange {
	return &storepb.AuthChange{Change: &storepb.AuthChange_UserDelete{
		UserDelete: &storepb.UserDelete{Name: name}}}
}

func addRole(name string) *storepb.AuthChange {
	return &storepb.AuthChange{Change: &storepb.AuthChange_RoleAdd{
		RoleAdd: &storepb.RoleAdd{Name: name}}}
}

func grantRole(user, role string) *storepb.AuthChange {
	return &storepb.AuthChange{Change: &storepb.AuthChange_GrantRole{
		GrantRole: &storepb.UserRole{User: user, Role: role}}}
}

func permission(rights uint32) *storepb.KeyspaceGrant {
	return &storepb.KeyspaceGrant{Role: "r", Permission: &storepb.KeyspacePermission{Keyspace: 7,
		Rights: rights, Key: []byte("a"), RangeEnd: []byte("b")}}
}

func grant(rights uint32) *storepb.AuthChange {
	return &storepb.AuthChange{Change: &storepb.AuthChange_GrantKeyspace{
		GrantKeyspace: permission(rights)}}
}

func revoke(rights uint32) *storepb.AuthChange {
	return &storepb.AuthChange{Change: &storepb.AuthChange_RevokeKeyspace{
		RevokeKeyspace: permission(rights)}}
}

// users adds root and the user u, who may read from a to b in keyspace 7, and enables
// authentication.
func (c *core) users() {
	c.change(addUser("root"), grantRole("root", "root"), addRole("r"), addUser("u"),
		grantRole("u", "r"), grant(authority.KeyspaceRead), enable(1))
}

// server is a Guard that runs, and its disk.
type server struct {
	*Cache
	mu   sync.Mutex
	disk Flag
	// full: nothing can be written.
	full bool
	stop func()
}

var errFull = errors.New("disk full")

// withoutData has begin make a server that holds none.
func withoutData(c *Config) { c.Data = false }

func begin(t testing.TB, c *core, mark Flag, configure ...func(*Config)) *server {
	s := &server{disk: mark}
	base := time.Now()
	config := Config{Source: c, Mark: mark, Data: true, Save: func(m Flag) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.full {
			return errFull
		}
		s.disk = m
		return nil
	}, Monotonic: func() int64 { return int64(time.Since(base)) }}
	for _, f := range configure {
		f(&config)
	}
	g, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	s.Cache = g
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { g.Run(ctx) })
	s.stop = sync.OnceFunc(func() { cancel(); running.Wait(); g.Close() })
	return s
}

// in runs a test in virtual time.
func in(t *testing.T, f func(t *testing.T, c *core)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newCore(t)) })
}

var read = []access.Permission{{Keyspace: 7, Start: []byte("a1"), Right: access.Read}}

// wants checks what a client hears; 0: it may. What is said before needs are known fits that.
func wants(t testing.TB, c access.Client, want access.Reason, needs ...access.Permission) {
	t.Helper()
	if len(needs) == 0 {
		needs = read
	}
	free, standing := c.Standing()
	err := c.May(needs)
	if (free || standing != nil) && (free != (err == nil) || free == (standing != nil)) {
		t.Errorf("whatever it needs, it hears %t, %v; then %v", free, standing, err)
	}
	var refused *access.Error
	switch {
	case want == 0 && err != nil:
		t.Errorf("it may not: %v", err)
	case want != 0 && (!errors.As(err, &refused) || refused.Reason != want):
		t.Errorf("it hears %v, want reason %d", err, want)
	}
}
