package etcdapi

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/users"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// fakeKeyspaces are a cluster whose servers follow in a moment, or never.
type fakeKeyspaces struct {
	mu         sync.Mutex
	version    uint64
	on, ending bool
	ids        map[string]uint64
	// beforeRelease is called when Release is called for the n-th time, from 1 on. Default: nothing
	// is.
	beforeRelease func(n int)
	releases      int
	// missing: a server does not follow.
	missing bool
	random  *rand.Rand
}

var errMissing = status.Error(codes.FailedPrecondition, "node 7 does not answer")

func (f *fakeKeyspaces) ID(_ context.Context, name string) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if id := f.ids[name]; id != 0 {
		return id, nil
	}
	return 0, status.Errorf(codes.NotFound, "there is no keyspace %q", name)
}

func (f *fakeKeyspaces) Names(context.Context) (map[uint64]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := map[uint64]string{}
	for name, id := range f.ids {
		names[id] = name
	}
	return names, nil
}

// delay lets others go first, sometimes.
func (f *fakeKeyspaces) delay() {
	f.mu.Lock()
	n := 0
	if f.random != nil {
		n = f.random.IntN(3)
	}
	f.mu.Unlock()
	time.Sleep(time.Duration(n) * time.Millisecond)
}

func (f *fakeKeyspaces) Guard(_ context.Context, again bool) (uint64, error) {
	f.delay()
	f.mu.Lock()
	version := uint64(0)
	if !f.on || f.ending || !again {
		f.version, f.on, f.ending = f.version+1, true, false
		version = f.version
	}
	f.mu.Unlock()
	f.delay()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.missing || !f.on || f.ending {
		return version, errMissing
	}
	return f.version, nil
}

func (f *fakeKeyspaces) Guarding(context.Context) (uint64, bool, error) {
	f.delay()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.version, f.on, nil
}

func (f *fakeKeyspaces) Release(_ context.Context, version uint64) (uint64, error) {
	f.delay()
	f.mu.Lock()
	f.releases++
	n, before := f.releases, f.beforeRelease
	f.mu.Unlock()
	if before != nil {
		before(n)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.on && f.version == version {
		f.version, f.on, f.ending = f.version+1, !f.ending, !f.ending
	}
	if f.ending {
		return f.version, nil
	}
	return 0, nil
}

// addRoot adds the user root, who can enable authentication.
func addRoot(t *testing.T, g *served) {
	t.Helper()
	_, added := g.UserAdd(t.Context(), "root", "secret")
	_, granted := g.UserGrantRole(t.Context(), "root", "root")
	if err := errors.Join(added, granted); err != nil {
		t.Fatal(err)
	}
}

// What fails on the way leaves servers as they were, and what is disabled needs them no more.
func TestEnableAndServers(t *testing.T) {
	f := &fakeKeyspaces{missing: true}
	served := serve(t, func(c *Config) { c.Keyspaces = f })
	ctx := t.Context()
	if _, err := served.AuthEnable(ctx); err == nil || f.version != 0 {
		t.Fatalf("without a user root: %v, version %d", err, f.version)
	}
	addRoot(t, served)
	if _, err := served.AuthEnable(ctx); err == nil || !strings.Contains(err.Error(), "node 7") {
		t.Fatalf("a server is missing: %v", err)
	}
	if f.on || served.lone.Authority().Enabled() {
		t.Fatal("servers follow, or authentication is enabled, although one is missing")
	}
	f.missing = false
	if _, err := served.AuthEnable(ctx); err != nil {
		t.Fatal(err)
	}
	if !f.on || !served.lone.Authority().Enabled() {
		t.Fatal("it is not enabled")
	}
}

// However many calls enable and disable authentication at the same time: when all is over, servers
// follow if it is enabled, and each call that was told that it is was told right, as of some
// moment.
func TestEnableAndDisableAtOnce(t *testing.T) {
	for seed := range uint64(10) {
		f := &fakeKeyspaces{random: rand.New(rand.NewPCG(seed, 1))}
		g := serve(t, func(c *Config) { c.Keyspaces, c.CertificateUsers = f, true })
		addRoot(t, g)
		s, ctx := g.services.Auth, withCertificate("root", true)
		var all sync.WaitGroup
		for i := range 4 {
			random := rand.New(rand.NewPCG(seed, uint64(i)+2))
			all.Go(func() {
				for range 15 {
					if random.IntN(2) == 0 {
						_, _ = s.AuthEnable(ctx, &pb.AuthEnableRequest{})
					} else {
						_, _ = s.AuthDisable(ctx, &pb.AuthDisableRequest{})
					}
				}
			})
		}
		all.Wait()
		if _, err := s.AuthEnable(ctx, &pb.AuthEnableRequest{}); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !f.on || !g.lone.Authority().Enabled() {
			t.Fatalf("seed %d: enabled %v, servers follow %v", seed, g.lone.Authority().Enabled(), f.on)
		}
		if _, err := s.AuthDisable(ctx, &pb.AuthDisableRequest{}); err != nil {
			t.Fatal(err)
		}
		if f.on {
			t.Fatalf("seed %d: servers follow although it is disabled", seed)
		}
	}
}

// Authentication is disabled while it is enabled on another member: whatever goes first, servers
// follow once it was acknowledged that it is enabled.
func TestEnableWhileReleased(t *testing.T) {
	for name, c := range map[string]struct {
		// at is the step of releasing before which the other enables; begun: it began before all, and
		// has only the command left, and to look at the record.
		at    int
		begun bool
		// earlier: the command of a call that enables, and has not looked yet, goes first.
		earlier bool
	}{
		"begun before, before the first step":      {at: 1, begun: true},
		"begun before, before the second step":     {at: 2, begun: true},
		"as a whole, before the first step":        {at: 1},
		"as a whole, before the second step":       {at: 2},
		"again, before the first step":             {at: 1, earlier: true},
		"again, while the record is being put off": {at: 2, earlier: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeKeyspaces{version: 1, on: true}
			g := serve(t, func(c *Config) { c.Keyspaces, c.CertificateUsers = f, true })
			addRoot(t, g)
			s, ctx := g.services.Auth, withCertificate("root", true)
			acknowledged := false
			f.beforeRelease = func(n int) {
				if n != c.at {
					return
				}
				if c.begun || c.earlier {
					enable := store.ChangeAuth(nil, &storepb.AuthChange{
						Change: &storepb.AuthChange_Enable{Enable: users.NewKey()}})
					if _, err := g.services.Execute(ctx, enable); err != nil {
						t.Error(err)
					}
					now, on, _ := f.Guarding(ctx)
					acknowledged = on && now == 1
				}
				if !c.begun {
					_, err := s.AuthEnable(ctx, &pb.AuthEnableRequest{})
					acknowledged = err == nil
				}
			}
			if _, err := s.AuthDisable(ctx, &pb.AuthDisableRequest{}); err != nil {
				t.Fatal(err)
			}
			enabled := g.lone.Authority().Enabled()
			if !enabled || acknowledged == (c.begun && c.at == 2) {
				t.Fatalf("enabled %v, acknowledged %v", enabled, acknowledged)
			}
			if acknowledged && !f.on {
				t.Error("authentication is enabled and acknowledged, and servers do not follow")
			}
		})
	}
}

// Permissions are of a keyspace's id, and shown by its name.
func TestPermissionsByName(t *testing.T) {
	f := &fakeKeyspaces{ids: map[string]uint64{"a": 1}}
	served := serve(t, func(c *Config) { c.Keyspaces = f })
	ctx := t.Context()
	api := coordpb.NewPermissionsClient(served.ActiveConnection())
	if _, err := served.RoleAdd(ctx, "r"); err != nil {
		t.Fatal(err)
	}
	read := &coordpb.Rights{Read: true}
	for _, r := range []*coordpb.KeyspaceRange{
		{Keyspace: "a", Start: []byte("k"), End: []byte("k\x00")},
		{Keyspace: "a", Start: []byte("k"), End: []byte("l")},
		{Keyspace: "a", Start: []byte("k")},
		{KeyspaceId: 1},
	} {
		if _, err := api.Grant(ctx, &coordpb.GrantRequest{Role: "r", Keys: r,
			Rights: read}); err != nil {
			t.Fatalf("%v: %v", r, err)
		}
		got, err := api.Get(ctx, &coordpb.GetPermissionsRequest{Role: "r"})
		if err != nil || len(got.Permissions) != 1 {
			t.Fatalf("%v: %v, %v", r, got, err)
		}
		k := got.Permissions[0].Keys
		if k.Keyspace != "a" || k.KeyspaceId != 1 || string(k.Start) != string(r.Start) ||
			string(k.End) != string(r.End) {
			t.Errorf("%v is shown as %v", r, k)
		}
		if _, err := api.Revoke(ctx, &coordpb.RevokeRequest{Role: "r", Keys: k}); err != nil {
			t.Fatalf("%v: %v", k, err)
		}
	}
	for _, r := range []*coordpb.GrantRequest{
		{Role: "r", Rights: read}, {Role: "r", Keys: &coordpb.KeyspaceRange{}, Rights: read},
		{Role: "r", Keys: &coordpb.KeyspaceRange{Keyspace: "b"}, Rights: read},
		{Role: "r", Keys: &coordpb.KeyspaceRange{Keyspace: "a", KeyspaceId: 2}, Rights: read},
		{Role: "r", Keys: &coordpb.KeyspaceRange{Keyspace: "a"}},
		{Role: "none", Keys: &coordpb.KeyspaceRange{Keyspace: "a"}, Rights: read},
		{Role: "r", Keys: &coordpb.KeyspaceRange{Keyspace: "a", End: []byte{0}}, Rights: read},
		{Role: "r", Keys: &coordpb.KeyspaceRange{Keyspace: "a", Start: []byte("b"), End: []byte("a")},
			Rights: read},
	} {
		if _, err := api.Grant(ctx, r); err == nil {
			t.Errorf("%v was granted", r)
		}
	}
}
