package embedded

import (
	"context"
	"errors"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// While authentication is enabled only root creates and drops keyspaces, whichever server is asked,
// and a user without rights for data writes none.
func TestAdministrationNeedsRoot(t *testing.T) {
	cluster := startEtcd(t, nil)
	ctx := t.Context()
	at := cluster.Endpoints()
	etcd := etcdClient(t, nil, at[:3]...)
	token := func(name, password string) kv.Option {
		t.Helper()
		r, err := etcd.Authenticate(ctx, name, password)
		if err != nil {
			t.Fatal(err)
		}
		return kv.Token(func(context.Context) (string, error) { return r.Token, nil })
	}
	stranger := openAt(t, at[0])
	if _, err := stranger.CreateKeyspace(ctx, "before", kv.Hash(1), kv.Replicas(1)); err != nil {
		t.Fatalf("with authentication disabled: %v", err)
	}
	var errs []error
	step := func(_ any, err error) { errs = append(errs, err) }
	step(etcd.UserAdd(ctx, "root", "secret"))
	step(etcd.UserGrantRole(ctx, "root", "root"))
	step(etcd.UserAdd(ctx, "u", "pw"))
	step(etcd.AuthEnable(ctx))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	heard(t, cluster.running()...)
	asUser, asRoot := token("u", "pw"), token("root", "secret")
	for i, endpoint := range at { // the last is no member of the core
		for name, c := range map[string]*kv.Client{"a stranger": openAt(t, endpoint),
			"a user": openAt(t, endpoint, asUser)} {
			if err := c.DropKeyspace(ctx, "before"); err == nil ||
				!strings.Contains(err.Error(), "user name is empty") &&
					!strings.Contains(err.Error(), "permission denied") {
				t.Errorf("server %d: a keyspace is dropped by %s: %v", i, name, err)
			}
			if x, err := admin.New(c).Examine(ctx, at[0], nil); err == nil ||
				!strings.Contains(err.Error(), "user name is empty") &&
					!strings.Contains(err.Error(), "permission denied") {
				t.Errorf("server %d: a server is examined by %s: %v, %v", i, name, x, err)
			}
			if x, err := admin.New(c).Collect(ctx, at[3], admin.ItemLog, 0); err == nil {
				t.Errorf("server %d: %s is given a log: %s", i, name, x)
			}
			if _, err := admin.New(c).Keyspaces(ctx); err != nil {
				t.Errorf("server %d: keyspaces are not shown to %s: %v", i, name, err)
			}
		}
		root := openAt(t, endpoint, asRoot)
		for _, server := range at {
			x, err := admin.New(root).Examine(ctx, server, at)
			if err != nil || x.Address != server || len(x.Links) != len(at)-1 {
				t.Errorf("server %d: %s is examined by root: %v, %v", i, server, x, err)
			}
			for _, s := range x.Settings {
				// Only members of the core read these settings.
				if s.Name == "core-history" || s.Name == "max-txn-ops" {
					if member := server != at[3]; s.Same != member {
						t.Errorf("%s of %s: all have the same: %v", s.Name, server, s.Same)
					}
				}
			}
		}
		if _, err := root.CreateKeyspace(ctx, "k", kv.Hash(1), kv.Replicas(1)); err != nil {
			t.Errorf("server %d: create by root: %v", i, err)
		}
		if err := root.DropKeyspace(ctx, "k"); err != nil {
			t.Errorf("server %d: drop by root: %v", i, err)
		}
	}
	write := func(c *kv.Client) error {
		_, err := c.Update(ctx, func(tx *kv.Txn) error {
			return tx.Put(c.Keyspace("before"), []byte("a"), nil)
		})
		return err
	}
	if err := write(stranger); !errors.Is(err, kv.ErrUnauthenticated) {
		t.Errorf("a stranger writes data: %v", err)
	}
	if err := write(openAt(t, at[0], asUser)); !errors.Is(err, kv.ErrPermissionDenied) {
		t.Errorf("a user without rights writes data: %v", err)
	}
	if err := write(openAt(t, at[3], asRoot)); err != nil {
		t.Errorf("data are not written by root: %v", err)
	}
	admin, err := clientv3.New(clientv3.Config{Endpoints: at[:3], Username: "root",
		Password: "secret", Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.AuthDisable(ctx); err != nil {
		t.Fatal(err)
	}
	if err := openAt(t, at[3]).DropKeyspace(ctx, "before"); err != nil {
		t.Errorf("with authentication disabled again: %v", err)
	}
}
