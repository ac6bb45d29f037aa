package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/deploy/embedded/passedon"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// tableStream is a stream of the partition table, and what has come on it.
type tableStream struct {
	follow clusterpb.Cluster_FollowTableClient // nil of WatchTable

	mu       sync.Mutex
	text     []byte
	names    map[string]bool
	complete bool
	err      error
}

// openTable opens FollowTable, or WatchTable, as who has a token, for some keyspaces.
func openTable(t *testing.T, endpoint, token string, whole bool, keyspaces ...uint32) *tableStream {
	t.Helper()
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s, client := &tableStream{names: map[string]bool{}}, clusterpb.NewClusterClient(conn)
	var stream interface {
		Recv() (*clusterpb.TableUpdate, error)
	}
	if whole {
		if token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, passedon.TokenField, token)
		}
		stream, err = client.WatchTable(ctx, &clusterpb.WatchTableRequest{})
	} else if s.follow, err = client.FollowTable(ctx); err == nil {
		stream = s.follow
		err = s.follow.Send(&clusterpb.FollowTableRequest{Keyspaces: keyspaces, Token: token})
	}
	if err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			u, err := stream.Recv()
			s.mu.Lock()
			if s.err = err; err != nil {
				s.mu.Unlock()
				return
			}
			text, _ := proto.Marshal(u)
			s.text = append(s.text, text...)
			for _, k := range u.Keyspaces {
				s.names[k.Name] = true
			}
			s.complete = s.complete || u.Complete
			s.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		cancel()
		reading.Wait()
		conn.Close()
	})
	return s
}

// has says whether a key has come.
func (s *tableStream) has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Contains(s.text, []byte(key))
}

func (s *tableStream) isComplete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.complete
}

func (s *tableStream) knows(keyspace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names[keyspace]
}

// The streams that clients route by have the bounds of a keyspace for those who have a right to
// some of its keys, also if they come to have it while the stream is open, and for nobody else. A
// client without a right hears so at once, and works as soon as it has one.
func TestTableIsForUsers(t *testing.T) {
	cluster := startEtcd(t, func(i int, c *ServerConfig) {
		if i == 2 {
			c.Roles = []string{RoleCore}
		}
	})
	ctx, at := t.Context(), cluster.Endpoints()
	etcd := etcdClient(t, nil, at[:3]...)
	operator := openAt(t, at[0])
	s := steps{t: t}
	s.do(operator.CreateKeyspace(ctx, "secrets",
		kv.Range([]byte(marker+"/a"), []byte(marker+"/m")), kv.Replicas(1)))
	s.do(operator.CreateKeyspace(ctx, "other", kv.Range(), kv.Replicas(1)))
	s.do(etcd.UserAdd(ctx, "root", "secret"))
	s.do(etcd.UserGrantRole(ctx, "root", "root"))
	api := coordpb.NewPermissionsClient(etcd.ActiveConnection())
	all := &coordpb.Rights{Read: true, Write: true}
	grants := map[string]*coordpb.GrantRequest{
		"reader": {Keys: whole("secrets"), Rights: &coordpb.Rights{Read: true}},
		"writer": {Keys: whole("secrets"), Rights: &coordpb.Rights{Write: true}},
		"admin":  {Keys: whole("secrets"), Rights: &coordpb.Rights{Admin: true}},
		"part": {Keys: &coordpb.KeyspaceRange{Keyspace: "secrets", Start: []byte(marker + "/e"),
			End: []byte(marker + "/g")}, Rights: all},
		"elsewhere": {Keys: whole("other"), Rights: all},
		"nobody":    nil,
		"late":      nil,
	}
	for user, grant := range grants {
		s.do(etcd.UserAdd(ctx, user, "pw"))
		s.do(etcd.RoleAdd(ctx, user))
		s.do(etcd.UserGrantRole(ctx, user, user))
		if grant != nil {
			grant.Role = user
			s.do(api.Grant(ctx, grant))
		}
	}
	s.do(etcd.AuthEnable(ctx))
	s.check()
	heard(t, cluster.running()...)
	secrets, err := admin.New(operator).Keyspace(ctx, "secrets")
	if err != nil {
		t.Fatal(err)
	}
	tokens := map[string]string{}
	token := func(user, password string) string {
		t.Helper()
		if tokens[user] != "" {
			return tokens[user]
		}
		r, err := etcd.Authenticate(ctx, user, password)
		if err != nil {
			t.Fatal(err)
		}
		tokens[user] = r.Token
		return r.Token
	}
	as := func(endpoint, user string) *kv.Client {
		shown := token(user, "pw")
		return openAt(t, endpoint, kv.Token(func(context.Context) (string, error) { return shown, nil }))
	}
	root := openAt(t, at[3], kv.User("root", kv.Password("secret")))

	// A client with a right routes, from any server.
	key := []byte(marker + "/f")
	for i, endpoint := range at {
		for user := range grants {
			ks := as(endpoint, user).Keyspace("secrets")
			limited, cancel := context.WithTimeout(ctx, 10*time.Second)
			_, err := ks.Get(limited, key)
			mayRead := user == "reader" || user == "part"
			if mayRead && !errors.Is(err, kv.ErrNotFound) ||
				!mayRead && !errors.Is(err, kv.ErrPermissionDenied) {
				t.Errorf("server %d: %s reads: %v", i, user, err)
			}
			_, err = ks.Put(limited, key, nil)
			mayWrite := user == "writer" || user == "part"
			if mayWrite && err != nil || !mayWrite && !errors.Is(err, kv.ErrPermissionDenied) {
				t.Errorf("server %d: %s writes: %v", i, user, err)
			}
			if _, err := root.Keyspace("secrets").Delete(ctx, key); err != nil {
				t.Fatal(err)
			}
			cancel()
		}
		if _, err := openAt(t, endpoint).Keyspace("secrets").Get(ctx, key); !errors.Is(err,
			kv.ErrUnauthenticated) {
			t.Errorf("server %d: a stranger reads: %v", i, err)
		}
	}

	type opened struct {
		who    string
		stream *tableStream
	}
	var blind, sighted, late []opened
	for i, endpoint := range at {
		for _, whole := range []bool{false, true} {
			add := func(to *[]opened, who, token string) {
				*to = append(*to, opened{fmt.Sprintf("server %d, %s, WatchTable %t", i, who, whole),
					openTable(t, endpoint, token, whole, secrets.ID)})
			}
			add(&blind, "a stranger", "")
			add(&blind, "a liar", "user.1.2")
			add(&late, "late", token("late", "pw"))
			for user := range grants {
				switch user {
				case "late":
				case "elsewhere", "nobody":
					add(&blind, user, token(user, "pw"))
				default:
					add(&sighted, user, token(user, "pw"))
				}
			}
			add(&sighted, "root", token("root", "secret"))
		}
	}
	for _, o := range sighted {
		awaitTrue(t, o.who+" has the bounds",
			func() bool { return o.stream.has(marker+"/a") && o.stream.isComplete() })
	}
	for _, o := range append(blind, late...) {
		awaitTrue(t, o.who+" has a table", o.stream.isComplete)
		if o.stream.has(marker) {
			t.Errorf("%s: bounds are shown", o.who)
		}
	}

	// A right that is granted counts for the streams and clients that are open.
	client := as(at[3], "late")
	ks := client.Keyspace("secrets")
	if _, err := ks.Get(ctx, key); !errors.Is(err, kv.ErrPermissionDenied) {
		t.Errorf("before the grant: %v", err)
	}
	if d, err := admin.New(client).Keyspace(ctx, "secrets"); err != nil || len(d.SplitAt) != 0 ||
		!d.SplitAtHidden() {
		t.Errorf("described to who has no right: %v, %v", d, err)
	}
	// Who logs in after the stream was opened.
	changed := openTable(t, at[3], "", false, secrets.ID)
	awaitTrue(t, "a stranger has a table", changed.isComplete)
	if err := changed.follow.Send(&clusterpb.FollowTableRequest{
		Token: token("reader", "pw")}); err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, "a stream has the bounds after a token was shown",
		func() bool { return changed.has(marker + "/a") })
	asRoot := etcdAs(t, nil, "root", "secret", at[:3]...)
	apiAsRoot := coordpb.NewPermissionsClient(asRoot.ActiveConnection())
	rootCtx := metadata.AppendToOutgoingContext(ctx, passedon.TokenField, token("root", "secret"))
	grant := &coordpb.GrantRequest{Role: "late", Keys: whole("secrets"), Rights: all}
	if _, err := apiAsRoot.Grant(rootCtx, grant); err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, "a client reads after a grant", func() bool {
		_, err := ks.Get(ctx, key)
		if !errors.Is(err, kv.ErrNotFound) && !errors.Is(err, kv.ErrPermissionDenied) {
			t.Errorf("after the grant: %v", err)
		}
		return errors.Is(err, kv.ErrNotFound)
	})
	awaitTrue(t, "splits are described after a grant", func() bool {
		d, err := admin.New(client).Keyspace(ctx, "secrets")
		return err == nil && len(d.SplitAt) == 2 && !d.SplitAtHidden()
	})
	for _, o := range late {
		awaitTrue(t, o.who+" has the bounds after a grant",
			func() bool { return o.stream.has(marker + "/a") })
	}

	// One that is revoked counts no more: of what is split after that nothing comes.
	if _, err := apiAsRoot.Revoke(rootCtx, &coordpb.RevokeRequest{Role: "late",
		Keys: grant.Keys, Rights: all}); err != nil {
		t.Fatal(err)
	}
	shown := token("late", "pw")
	for i := range at {
		awaitTrue(t, "servers have heard of it", func() bool {
			return !cluster.Server(i).auth.Client(access.Credentials{Token: shown}).MayAny(
				uint64(secrets.ID))
		})
	}
	if _, err := admin.New(root).SplitPartition(ctx, "secrets", []byte(marker+"/q")); err != nil {
		t.Fatal(err)
	}
	for _, o := range sighted {
		awaitTrue(t, o.who+" has the new bound", func() bool { return o.stream.has(marker + "/q") })
	}
	if _, err := root.CreateKeyspace(ctx, "after", kv.Range(), kv.Replicas(1)); err != nil {
		t.Fatal(err)
	}
	for _, o := range append(blind, late...) {
		awaitTrue(t, o.who+" has later news", func() bool { return o.stream.knows("after") })
		if o.stream.has(marker + "/q") {
			t.Errorf("%s: a bound is shown after the right was revoked", o.who)
		}
	}
	for _, o := range blind {
		if o.stream.has(marker) {
			t.Errorf("%s: bounds are shown", o.who)
		}
	}
}
