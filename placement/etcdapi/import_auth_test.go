package etcdapi

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/bench/proof/reference"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/etcdfile"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// Users with their passwords, roles, and that they count, are imported from a snapshot of etcd, and
// both answer the same to each of the users.
func TestImportedUsersAreEtcds(t *testing.T) {
	etcd := reference.Test(t, reference.Options{Args: []string{"--unsafe-no-fsync"}})
	path := filepath.Join(t.TempDir(), "snapshot.db")
	if err := saveSnapshot(t.Context(), usersOfTest(t, etcd.Endpoints()[0]), path); err != nil {
		t.Fatal(err)
	}
	s := serve(t, nil)
	importUsers(t, s, path)
	compareUsers(t, etcd.Endpoints()[0], s.address)
}

// Users with their passwords, roles, and that they count, are in a snapshot, which root alone gets:
// an etcd that is restored from it, and a store that imports it, answer the same to each of them.
func TestSnapshotHasUsers(t *testing.T) {
	from := serve(t, nil)
	root := usersOfTest(t, from.address)
	dir := t.TempDir()
	alice := dialAs(t, from.address, "alice", "secret of alice")
	for name, c := range map[string]*clientv3.Client{"alice": alice, "nobody": from.Client} {
		if err := saveSnapshot(t.Context(), c, filepath.Join(dir, name)); err == nil {
			t.Errorf("%s gets a snapshot with the hashes of passwords", name)
		}
	}
	path := filepath.Join(dir, "snapshot.db")
	if err := saveSnapshot(t.Context(), root, path); err != nil {
		t.Fatal(err)
	}
	programs, err := reference.Install(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	etcd, ours := restoredAt(t, programs, path), serve(t, nil)
	importUsers(t, ours, path)
	compareUsers(t, etcd, ours.address)
}

// usersOfTest makes keys, users and roles, and enables authentication. The client that it returns
// is of root.
func usersOfTest(t *testing.T, address string) *clientv3.Client {
	t.Helper()
	from, ctx := dial(t, address), t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"a", "b", "ca", "cb"} {
		must(from.Put(ctx, key, "of "+key))
	}
	must(from.UserAdd(ctx, "root", "secret of root"))
	must(from.UserGrantRole(ctx, "root", "root"))
	must(from.UserAdd(ctx, "alice", "secret of alice"))
	must(from.UserAddWithOptions(ctx, "bob", "", &clientv3.UserAddOptions{NoPassword: true}))
	must(from.RoleAdd(ctx, "empty"))
	must(from.RoleAdd(ctx, "some"))
	must(from.RoleGrantPermission(ctx, "some", "a", "", clientv3.PermissionType(clientv3.PermRead)))
	must(from.RoleGrantPermission(ctx, "some", "c", "d",
		clientv3.PermissionType(clientv3.PermReadWrite)))
	must(from.UserGrantRole(ctx, "alice", "some"))
	must(from.UserGrantRole(ctx, "alice", "empty"))
	must(from.AuthEnable(ctx))
	return dialAs(t, address, "root", "secret of root")
}

// importUsers imports a snapshot of which usersOfTest has made the content.
func importUsers(t *testing.T, s *served, path string) {
	t.Helper()
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	file, err := etcdfile.Open(ctx, path, etcdfile.Options{})
	must(nil, err)
	defer file.Close()
	if !file.Auth || len(file.Users) != 3 || len(file.Roles) < 2 {
		t.Fatalf("%+v, %+v, %v", file.Users, file.Roles, file.Auth)
	}
	client := coordpb.NewImportClient(s.ActiveConnection())
	must(client.Auth(ctx, file.ImportedAuth()))
	must(client.Auth(ctx, file.ImportedAuth())) // as if it had been interrupted
	steps, state := file.Steps(7), &coordpb.ImportState{}
	for steps.EnableAuth = true; state.Phase != coordpb.ImportState_DONE; {
		step, err := steps.Next(state)
		must(nil, err)
		state, err = client.Step(ctx, step)
		must(nil, err)
	}
}

// compareUsers compares what an etcd and ours answer to each of the users of usersOfTest.
func compareUsers(t *testing.T, etcd, ours string) {
	t.Helper()
	ctx := t.Context()
	if _, err := dial(t, ours).Get(ctx, "a"); !errors.Is(err, rpctypes.ErrUserEmpty) {
		t.Errorf("a read without a user: %v", err)
	}
	for _, who := range [][2]string{{"root", "secret of root"}, {"alice", "secret of alice"},
		{"alice", "wrong"}, {"bob", ""}, {"bob", "x"}} {
		clients := make([]*clientv3.Client, 2)
		var errs [2]error
		for i, endpoint := range []string{etcd, ours} {
			clients[i], errs[i] = clientv3.New(clientv3.Config{Endpoints: []string{endpoint},
				Username: who[0], Password: who[1], Logger: zap.NewNop()})
			if errs[i] == nil {
				defer clients[i].Close()
			}
		}
		if status.Code(errs[0]) != status.Code(errs[1]) || (errs[0] == nil) != (errs[1] == nil) {
			t.Errorf("%s logs in: etcd %v, ours %v", who[0], errs[0], errs[1])
		}
		if errs[0] != nil || errs[1] != nil || who[1] == "" {
			continue
		}
		b := &sameUser{t: t, clients: clients}
		for _, key := range []string{"a", "b", "ca", "d"} {
			b.same("get "+key, func(c *clientv3.Client) (any, error) { return c.Get(ctx, key) })
			b.same("put "+key, func(c *clientv3.Client) (any, error) { return c.Put(ctx, key, "new") })
		}
		for _, name := range []string{"root", "alice", "bob"} {
			b.same("user "+name, func(c *clientv3.Client) (any, error) {
				r, err := c.UserGet(ctx, name)
				if err != nil {
					return nil, err
				}
				return r.Roles, nil
			})
		}
		for _, name := range []string{"some", "empty", "root"} {
			b.same("role "+name, func(c *clientv3.Client) (any, error) {
				r, err := c.RoleGet(ctx, name)
				if err != nil {
					return nil, err
				}
				return (*pb.AuthRoleGetResponse)(r).Perm, nil
			})
		}
	}
}

// sameUser are clients of etcd and of ours, of the same user.
type sameUser struct {
	t       *testing.T
	clients []*clientv3.Client
}

// same compares what both answer.
func (b *sameUser) same(what string, do func(*clientv3.Client) (any, error)) {
	b.t.Helper()
	want, wantErr := do(b.clients[0])
	got, gotErr := do(b.clients[1])
	if (wantErr == nil) != (gotErr == nil) || wantErr != nil && wantErr.Error() != gotErr.Error() {
		b.t.Errorf("%s: etcd %v, ours %v", what, wantErr, gotErr)
		return
	}
	if wantErr == nil && !sameAnswer(want, got) {
		b.t.Errorf("%s: etcd %v, ours %v", what, want, got)
	}
}

func sameAnswer(want, got any) bool {
	switch want := want.(type) {
	case *clientv3.GetResponse:
		w, g := (*pb.RangeResponse)(want), (*pb.RangeResponse)(got.(*clientv3.GetResponse))
		return proto.Equal(&pb.RangeResponse{Kvs: w.Kvs, Count: w.Count},
			&pb.RangeResponse{Kvs: g.Kvs, Count: g.Count})
	case *clientv3.PutResponse:
		return want.Header.Revision == got.(*clientv3.PutResponse).Header.Revision
	}
	return fmt.Sprint(want) == fmt.Sprint(got)
}

// Users are not brought into a store that has something, or others.
func TestImportOfUsersIsRefused(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	client := coordpb.NewImportClient(s.ActiveConnection())
	users := &coordpb.ImportedAuth{Users: []*coordpb.ImportedUser{{Name: "u"}}}
	if _, err := s.Put(ctx, "k", "v"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Auth(ctx, users); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("beside keys: %v", err)
	}
	if _, err := s.Delete(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.UserAdd(ctx, "other", "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Auth(ctx, users); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("beside others: %v", err)
	}
	// Authentication is not enabled without root, and the step is not done.
	step := &coordpb.ImportStep{Id: 3, Step: 1, Revision: 9, Source: []byte("x"), End: true,
		EnableAuth: true}
	if _, err := client.Step(ctx, step); err == nil {
		t.Error("authentication is enabled without root")
	}
	step.EnableAuth = false
	if _, err := client.Step(ctx, step); err != nil {
		t.Error(err)
	}
}
