package embedded

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/deploy/embedded/clustersecret"
	"github.com/tidemarkdb/tidemark/deploy/embedded/datadir"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/placement/authcache"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// steps are calls of which none may fail.
type steps struct {
	t    *testing.T
	errs []error
}

func (s *steps) do(_ any, err error) { s.errs = append(s.errs, err) }

func (s *steps) check() {
	s.t.Helper()
	if err := errors.Join(s.errs...); err != nil {
		s.t.Fatal(err)
	}
	s.errs = nil
}

func whole(name string) *coordpb.KeyspaceRange { return &coordpb.KeyspaceRange{Keyspace: name} }

// openAt opens a client of a server. The client ends with the test.
func openAt(t *testing.T, endpoint string, options ...kv.Option) *kv.Client {
	t.Helper()
	client, err := kv.Open(t.Context(), []string{endpoint}, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

// may says what a server's guard answers to a client with a certificate; 0: it may.
func may(s *Server, certificate string, keyspace uint64, right access.Right) access.Reason {
	var refused *access.Error
	if err := s.auth.Client(access.Credentials{CertificateName: certificate}).May([]access.Permission{
		{Keyspace: keyspace, End: []byte{}, Right: right}}); errors.As(err, &refused) {
		return refused.Reason
	}
	return 0
}

// heard waits until the servers have heard that authentication is enabled. They hear of a change
// within the grace of package authcache after its acknowledgement.
func heard(t *testing.T, servers ...*Server) {
	t.Helper()
	for i, s := range servers {
		awaitTrue(t, fmt.Sprintf("server %d has heard that authentication is enabled", i), func() bool {
			return may(s, "", 1, access.Read) == access.Unauthenticated
		})
	}
}

// Users guard keyspaces on every server once authentication is enabled, and no more when it is
// disabled. Who may administer a keyspace drops it, through a server that is no member of the core
// as well; a keyspace of the same name is another one.
func TestKeyspacesAreGuarded(t *testing.T) {
	config, configure := etcdCertificates(t) // of the user "user"
	cluster := startEtcd(t, configure)
	at, ctx := cluster.Endpoints(), t.Context()
	etcd := etcdClient(t, config, at[:3]...)
	api := coordpb.NewPermissionsClient(etcd.ActiveConnection())
	open := func(endpoint string, options ...kv.Option) *kv.Client {
		t.Helper()
		client, err := kv.Open(ctx, []string{endpoint}, append(options, kv.TLS(config))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		return client
	}
	outside := open(at[3]) // a server that is no member of the core
	s := steps{t: t}
	for _, name := range []string{"mine", "other"} {
		s.do(outside.CreateKeyspace(ctx, name, kv.Range([]byte("m")), kv.Replicas(1)))
	}
	s.do(etcd.UserAdd(ctx, "root", "secret"))
	s.do(etcd.UserGrantRole(ctx, "root", "root"))
	s.do(etcd.UserAddWithOptions(ctx, "user", "", &clientv3.UserAddOptions{NoPassword: true}))
	s.do(etcd.RoleAdd(ctx, "r"))
	s.do(etcd.UserGrantRole(ctx, "user", "r"))
	s.do(api.Grant(ctx, &coordpb.GrantRequest{Role: "r", Keys: whole("mine"),
		Rights: &coordpb.Rights{Read: true, Admin: true}}))
	s.check()
	if _, err := api.Grant(ctx, &coordpb.GrantRequest{Role: "r", Keys: whole("none"),
		Rights: &coordpb.Rights{Read: true}}); status.Code(err) != codes.NotFound {
		t.Errorf("a permission for a keyspace that there is not: %v", err)
	}
	if _, err := api.Grant(ctx, &coordpb.GrantRequest{Role: "r", Keys: &coordpb.KeyspaceRange{
		Keyspace: "mine", Start: []byte("a")}, Rights: &coordpb.Rights{Admin: true}}); err == nil {
		t.Error("some keys are administered")
	}
	shown := func() *coordpb.KeyspacePermission {
		t.Helper()
		r, err := api.Get(ctx, &coordpb.GetPermissionsRequest{Role: "r"})
		if err != nil || len(r.Permissions) != 1 {
			t.Fatalf("%v, %v", r, err)
		}
		return r.Permissions[0]
	}
	p := shown()
	if p.Keys.Keyspace != "mine" || !p.Rights.Admin || !p.Rights.Read || p.Rights.Write {
		t.Errorf("%v", p)
	}
	if r, err := etcd.RoleGet(ctx, "r"); err != nil || len(r.Perm) != 0 {
		t.Errorf("etcd shows %v, %v", r, err)
	}
	mine := p.Keys.KeyspaceId
	for i := range at {
		if may(cluster.Server(i), "", mine, access.Write) != 0 {
			t.Errorf("server %d is guarded before authentication is enabled", i)
		}
	}

	s.do(etcd.AuthEnable(ctx))
	s.check()
	for i := range at {
		server := cluster.Server(i)
		id := server.directory.Identity()
		if m := server.auth.Flag(); !m.On || !id.Guards || id.Format < datadir.GuardedFormat {
			t.Errorf("server %d does not follow: %v, %v", i, m, id)
		}
		awaitTrue(t, "strangers are refused",
			func() bool { return may(server, "", mine, access.Read) == access.Unauthenticated })
		if r := may(server, "user", mine, access.Read); r != 0 {
			t.Errorf("server %d: it may not read, %d", i, r)
		}
		if r := may(server, "user", mine, access.Write); r != access.Denied {
			t.Errorf("server %d: it may write, %d", i, r)
		}
		if r := may(server, "user", mine+1, access.Read); r != access.Denied {
			t.Errorf("server %d: it may read the other one, %d", i, r)
		}
		client := open(at[i]) // known by its certificate, which is none of a server
		awaitTrue(t, "it has the bounds of its keyspace", func() bool {
			d, err := admin.New(client).Keyspace(ctx, "mine")
			return err == nil && len(d.SplitAt) == 1
		})
		if d, err := admin.New(client).Keyspace(ctx, "other"); err != nil || !d.SplitAtHidden() {
			t.Errorf("server %d: bounds of the other one: %q, %v", i, d.SplitAt, err)
		}
	}
	// Slow requests have keys of all clients: who administers the keyspace sees them.
	if _, err := admin.New(outside).SlowRequests(ctx, admin.SlowQuery{Keyspace: "mine"}); err != nil {
		t.Errorf("slow requests of a keyspace that the user administers: %v", err)
	}
	for _, of := range []string{"other", ""} { // "": all keyspaces
		_, err := admin.New(outside).SlowRequests(ctx, admin.SlowQuery{Keyspace: of})
		if !errors.Is(err, kv.ErrPermissionDenied) {
			t.Errorf("slow requests of the keyspace %q: %v", of, err)
		}
	}
	if err := outside.DropKeyspace(ctx, "other"); err == nil ||
		!strings.Contains(err.Error(), "permission denied") {
		t.Errorf("the other keyspace is dropped: %v", err)
	}
	if _, err := outside.CreateKeyspace(ctx, "more", kv.Hash(1)); err == nil {
		t.Error("a keyspace is created by who may administer another one")
	}
	if err := outside.DropKeyspace(ctx, "mine"); err != nil {
		t.Errorf("it is not dropped by who may administer it: %v", err)
	}
	root, err := etcd.Authenticate(ctx, "root", "secret")
	if err != nil {
		t.Fatal(err)
	}
	asRoot := open(at[3],
		kv.Token(func(context.Context) (string, error) { return root.Token, nil }))
	if _, err := asRoot.CreateKeyspace(ctx, "mine", kv.Hash(1), kv.Replicas(1)); err != nil {
		t.Fatalf("create by root: %v", err)
	}
	if p := shown(); p.Keys.Keyspace != "" || p.Keys.KeyspaceId != mine {
		t.Errorf("a keyspace that is gone is shown as %v", p)
	}
	if err := outside.DropKeyspace(ctx, "mine"); err == nil {
		t.Error("who could administer the one before drops the new one")
	}

	if _, err := etcdAs(t, config, "root", "secret", at[:3]...).AuthDisable(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range at {
		server := cluster.Server(i)
		awaitTrue(t, "it need not follow any more", func() bool {
			return !server.auth.Flag().On && may(server, "", mine, access.Write) == 0 &&
				!server.directory.Identity().Guards
		})
	}
}

// stranger is a caller that proves nothing.
func stranger(t *testing.T, at string) clusterpb.CoreClient {
	t.Helper()
	d := client.NewDialer(client.DialerConfig{})
	t.Cleanup(func() { d.Close() })
	conn, err := d.Conn(at)
	if err != nil {
		t.Fatal(err)
	}
	return clusterpb.NewCoreClient(conn)
}

// prepare adds the user root.
func prepare(t *testing.T, at string) *clientv3.Client {
	t.Helper()
	etcd := etcdClient(t, nil, at)
	s := steps{t: t}
	s.do(etcd.UserAdd(t.Context(), "root", "secret"))
	s.do(etcd.UserGrantRole(t.Context(), "root", "root"))
	s.check()
	return etcd
}

// Authentication is not enabled where strangers would pass for servers all the same. Where servers
// can prove themselves, --insecure counts no more once it is enabled, and what strangers have open
// ends.
func TestEnableClosesTheDoor(t *testing.T) {
	ctx := t.Context()
	c := onAllAddresses(t, "")
	c.Insecure, c.guardTimeout = true, time.Second
	s := running(t, c)
	if err := errors.Join(s.WaitReady(ctx), s.etcd.waitCoordination(ctx)); err != nil {
		t.Fatal(err)
	}
	if _, err := prepare(t, c.Advertise).AuthEnable(ctx); err == nil ||
		!strings.Contains(err.Error(), "--insecure") {
		t.Errorf("authentication is enabled: %v", err)
	}
	if m := s.auth.Flag(); m != (authcache.Flag{}) {
		t.Errorf("it was told to follow: %v", m)
	}

	c = onAllAddresses(t, "")
	c.Insecure = true
	c.SecretFile = filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(c.SecretFile, []byte(clustersecret.New()), 0o600); err != nil {
		t.Fatal(err)
	}
	s = running(t, c)
	if err := errors.Join(s.WaitReady(ctx), s.etcd.waitCoordination(ctx)); err != nil {
		t.Fatal(err)
	}
	outside := stranger(t, c.Advertise)
	join := &clusterpb.RegisterNodeRequest{Server: 7, Address: "127.0.0.1:9",
		Levels: s.level.Report()}
	watch, err := outside.WatchMetadata(ctx,
		&clusterpb.WatchMetadataRequest{Cluster: s.cluster.Load()})
	if err == nil {
		_, err = watch.Recv()
	}
	if err != nil {
		t.Fatalf("with --insecure: %v", err)
	}
	if _, err := prepare(t, c.Advertise).AuthEnable(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := outside.RegisterNode(ctx, join); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a stranger joins: %v", err)
	}
	for err == nil {
		_, err = watch.Recv()
	}
	if ctx.Err() != nil {
		t.Error("a stranger's stream goes on")
	}
	if _, err := s.node.register(ctx); err != nil {
		t.Errorf("the server itself: %v", err)
	}
}

// A server whose mark is on does not start where no other could prove to be a server to it, and
// names what is missing; what strangers have open as servers by a client's connection ends with
// enabling.
func TestFollowingNeedsProof(t *testing.T) {
	ctx := t.Context()
	c := onAllAddresses(t, "")
	c.Insecure = true
	c.SecretFile = filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(c.SecretFile, []byte(clustersecret.New()), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := StartServer(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	if err := errors.Join(s.WaitReady(ctx), s.etcd.waitCoordination(ctx)); err != nil {
		t.Fatal(err)
	}
	d := client.NewDialer(client.DialerConfig{})
	defer d.Close()
	connect := func(id uint64) *client.BatchConn {
		b := client.NewBatchConn(client.BatchConfig{Dialer: d, Address: c.Advertise, Client: id,
			Stream: func() uint64 { return 1 }, Server: true})
		t.Cleanup(b.Close)
		return b
	}
	now := func(b *client.BatchConn) error {
		_, err := b.Do(ctx, &kvpb.Request{Command: &kvpb.Request_Now{Now: &kvpb.NowRequest{}}})
		return err
	}
	before := connect(1)
	if err := now(before); err != nil {
		t.Fatalf("with --insecure: %v", err)
	}
	if _, err := prepare(t, c.Advertise).AuthEnable(ctx); err != nil {
		t.Fatal(err)
	}
	for i, b := range []*client.BatchConn{before, connect(2)} {
		if err := now(b); err == nil {
			t.Errorf("a stranger's stream as a server, %d: it is answered", i)
		}
	}
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	c.SecretFile = ""
	c.Registry = prometheus.NewRegistry()
	if s, err := StartServer(ctx, c); err == nil {
		t.Error("it starts without a secret", s.Close(ctx))
	} else if !strings.Contains(err.Error(), "--secret-file") {
		t.Errorf("it does not start: %v", err)
	}
}

// A node that is away keeps authentication from being enabled, by name, and the others are as they
// were before; a node that comes later follows from its first moment.
func TestEnableNeedsAllNodes(t *testing.T) {
	ctx := t.Context()
	first := onAllAddresses(t, "")
	first.guardTimeout = time.Second
	s := running(t, first)
	if err := errors.Join(s.WaitReady(ctx), s.etcd.waitCoordination(ctx)); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(first.Dir, clustersecret.FileName)
	second := onAllAddresses(t, first.Advertise)
	second.SecretFile = secret
	away, err := StartServer(ctx, second)
	if err != nil {
		t.Fatal(err)
	}
	if err := away.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	if err := away.Close(ctx); err != nil {
		t.Fatal(err)
	}
	etcd := prepare(t, first.Advertise)
	// The leader may have heard of it while it was there; then it does not follow.
	if _, err := etcd.AuthEnable(ctx); err == nil ||
		!strings.Contains(err.Error(), second.Advertise) {
		t.Fatalf("authentication is enabled without a node: %v", err)
	}
	awaitTrue(t, "the other one is free again", func() bool { return !s.auth.Flag().On })
	if r, err := etcd.AuthStatus(ctx); err != nil || r.Enabled {
		t.Errorf("%v, %v", r, err)
	}
	if err := running(t, second).WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, "authentication is enabled when it is back", func() bool {
		_, err := etcd.AuthEnable(ctx)
		return err == nil
	})
	third := onAllAddresses(t, first.Advertise)
	third.SecretFile = secret
	last := running(t, third)
	if err := last.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	if !last.auth.Flag().On {
		t.Error("a new node does not follow")
	}
}

// etcdAs is a client of etcd that logs in.
func etcdAs(t *testing.T, config *tls.Config, user, password string,
	at ...string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: at, TLS: config, Username: user,
		Password: password, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}
