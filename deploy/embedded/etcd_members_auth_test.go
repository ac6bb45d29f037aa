package embedded

import (
	"context"
	"crypto/tls"
	"errors"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// etcdUser is a client of etcd that logs in.
func etcdUser(t *testing.T, tlsConfig *tls.Config, name, password string,
	endpoints ...string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, TLS: tlsConfig,
		Username: name, Password: password, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
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

// enableUsers adds root and u, who has no role, and has users count.
func enableUsers(t *testing.T, client *clientv3.Client) {
	t.Helper()
	ctx, s := t.Context(), steps{t: t}
	s.do(client.UserAdd(ctx, "root", "secret"))
	s.do(client.UserGrantRole(ctx, "root", "root"))
	s.do(client.UserAdd(ctx, "u", "pw"))
	s.do(client.AuthEnable(ctx))
	s.check()
}

// TestEtcdMembersAreChangedByRoot: with authentication enabled, root adds, moves and removes
// members at any member, whichever leads; nobody else does.
func TestEtcdMembersAreChangedByRoot(t *testing.T) {
	cluster := startEtcd(t, nil)
	at := cluster.Endpoints()
	enableUsers(t, etcdClient(t, nil, at[0]))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for i := range 3 {
		server, url := candidate(t, at[:3])
		id := uint64(server.directory.Identity().Server)
		root, user := etcdUser(t, nil, "root", "secret", at[i]), etcdUser(t, nil, "u", "pw", at[i])
		stranger := etcdClient(t, nil, at[i])
		if _, err := user.MemberAddAsLearner(ctx, []string{url}); !errors.Is(err,
			rpctypes.ErrPermissionDenied) {
			t.Errorf("member %d: added by a user: %v", i, err)
		}
		if _, err := stranger.MemberRemove(ctx, id); !errors.Is(err, rpctypes.ErrUserEmpty) {
			t.Errorf("member %d: removed by a stranger: %v", i, err)
		}
		awaitTrue(t, "root adds the server", func() bool {
			_, err := root.MemberAddAsLearner(ctx, []string{url})
			if errors.Is(err, rpctypes.ErrUserEmpty) {
				t.Fatalf("member %d: added by root: %v", i, err)
			}
			return err == nil // the server offers itself every two seconds
		})
		if _, err := root.MemberUpdate(ctx, id, []string{url}); err != nil {
			t.Errorf("member %d: moved by root: %v", i, err)
		}
		if _, err := user.MemberPromote(ctx, id); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("member %d: promoted by a user: %v", i, err)
		}
		awaitTrue(t, "root has it vote", func() bool {
			_, err := root.MemberPromote(ctx, id)
			if err != nil && !errors.Is(err, rpctypes.ErrMemberLearnerNotReady) {
				t.Fatalf("member %d: promoted by root: %v", i, err)
			}
			return err == nil
		})
		if r, err := root.MemberRemove(ctx, id); err != nil || slices.ContainsFunc(r.Members,
			func(m *pb.Member) bool { return m.ID == id }) {
			t.Fatalf("member %d: removed by root: %v, %v", i, r, err)
		}
	}
}

// TestEtcdMembersAreChangedByCertificate: the user of a certificate changes the members, too.
func TestEtcdMembersAreChangedByCertificate(t *testing.T) {
	config, configure := etcdCertificates(t) // of the user "user"
	cluster := startEtcd(t, configure)
	at := cluster.Endpoints()
	client := etcdClient(t, config, at[0])
	ctx, s := t.Context(), steps{t: t}
	s.do(client.UserAddWithOptions(ctx, "user", "", &clientv3.UserAddOptions{NoPassword: true}))
	s.do(client.RoleAdd(ctx, "root"))
	s.do(client.UserGrantRole(ctx, "user", "root"))
	s.check()
	enableUsers(t, client)
	for i := range 3 {
		c := etcdClient(t, config, at[i])
		list, err := c.MemberList(ctx)
		if err != nil {
			t.Fatal(err)
		}
		m := list.Members[i]
		if _, err := c.MemberUpdate(ctx, m.ID, m.PeerURLs); err != nil {
			t.Errorf("member %d: %v", i, err)
		}
	}
}
