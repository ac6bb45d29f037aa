package etcdapi

import (
	"context"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// A change that is under way while authentication is enabled, or while users and roles change, is
// made as its client's user: at that moment the member may have known nothing of users.
func TestChangeWhileUsersChange(t *testing.T) {
	var meanwhile atomic.Pointer[func()]
	g := serve(t, func(c *Config) {
		c.CertificateUsers = true
		passedOn := func(ctx context.Context) (string, bool) {
			md, _ := metadata.FromIncomingContext(ctx)
			names := md.Get("test-user")
			return append(names, "")[0], len(names) > 0
		}
		// It is asked when the user of a change is known, and before the change is executed.
		party := func(context.Context) string {
			if do := meanwhile.Swap(nil); do != nil {
				(*do)()
			}
			return "client"
		}
		c.Callers = callers{passedOn: passedOn, party: party}
	})
	addRoot(t, g)
	ctx := t.Context()
	as := func(name string) context.Context {
		return metadata.AppendToOutgoingContext(ctx, "test-user", name)
	}
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(g.UserAddWithOptions(ctx, "u", "", &clientv3.UserAddOptions{NoPassword: true}))
	must(g.RoleAdd(ctx, "r"))
	must(g.RoleGrantPermission(ctx, "r", "mine", "", clientv3.PermissionType(clientv3.PermReadWrite)))
	must(g.UserGrantRole(ctx, "u", "r"))
	for _, change := range []func(){
		func() { must(g.AuthEnable(ctx)) },
		func() { must(g.RoleAdd(as("root"), "another")) },
	} {
		meanwhile.Store(&change)
		must(g.Put(as("u"), "mine", "v"))
		if meanwhile.Load() != nil {
			t.Fatal("nothing has changed meanwhile")
		}
		meanwhile.Store(nil)
	}
	if _, err := g.Put(as("u"), "other", "v"); err == nil {
		t.Error("another key is written")
	}
	if _, err := g.Put(ctx, "mine", "v"); err == nil {
		t.Error("nobody writes")
	}
}
