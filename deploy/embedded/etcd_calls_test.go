package embedded

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tidemarkdb/tidemark/kv/coord/direct"
)

// TestEtcdCallsOfACertificate: calls past gRPC come with the certificate of their connection, whose
// name is a user's.
func TestEtcdCallsOfACertificate(t *testing.T) {
	config, configure := etcdCertificates(t)
	cluster := startEtcd(t, configure)
	endpoints := cluster.Endpoints()[:3]
	admin := etcdClient(t, config, endpoints...)
	ctx := t.Context()
	var steps []error
	step := func(_ any, err error) { steps = append(steps, err) }
	step(admin.UserAdd(ctx, "root", "secret"))
	step(admin.UserGrantRole(ctx, "root", "root"))
	step(admin.UserAdd(ctx, "user", "unused"))
	step(admin.RoleAdd(ctx, "r"))
	step(admin.RoleGrantPermission(ctx, "r", "u/", "u0",
		clientv3.PermissionType(clientv3.PermReadWrite)))
	step(admin.UserGrantRole(ctx, "user", "r"))
	step(admin.AuthEnable(ctx))
	if err := errors.Join(steps...); err != nil {
		t.Fatal(err)
	}
	calls := direct.New(direct.Config{TLS: config})
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, TLS: config,
		Logger: zap.NewNop(), DialOptions: calls.DialOptions()})
	if err != nil {
		t.Fatal(err)
	}
	calls.Begin(client.Endpoints)
	t.Cleanup(func() {
		calls.Close()
		_ = client.Close()
	})
	awaitTrue(t, "calls go past gRPC", func() bool {
		if _, err := client.Put(ctx, "u/a", "1"); err != nil {
			t.Fatal(err)
		}
		return calls.Server() != ""
	})
	if got, err := client.Get(ctx, "u/", clientv3.WithPrefix()); err != nil || got.Count != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := client.Put(ctx, "v", "1"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("put: %v", err)
	}
	if _, err := client.Get(ctx, "v"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("get: %v", err)
	}
	if calls.Server() == "" {
		t.Error("calls go by gRPC")
	}
}
