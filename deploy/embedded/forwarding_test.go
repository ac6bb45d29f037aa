package embedded

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/v3electionpb"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// TestForwardedStreams: streams go through a data node as through a member: watches, renewals of
// leases, a snapshot, an election that is observed, and a lock that is waited for.
func TestForwardedStreams(t *testing.T) {
	cluster := startEtcd(t, nil)
	at := cluster.Endpoints()
	client := etcdClient(t, nil, at[3])
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	watch := client.Watch(clientv3.WithRequireLeader(ctx), "k", clientv3.WithPrevKV())
	lease, err := client.Grant(ctx, 5)
	if err != nil {
		t.Fatal(err)
	}
	alive, err := client.KeepAlive(ctx, lease.ID)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if _, err := client.Put(ctx, "k", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	for seen := 0; seen < 2; {
		r := <-watch
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
		for _, e := range r.Events {
			if string(e.Kv.Value) != fmt.Sprint(seen) || (e.PrevKv != nil) != (seen > 0) {
				t.Errorf("event %d: %v", seen, e)
			}
			seen++
		}
	}
	if r := <-alive; r == nil || r.TTL != 5 {
		t.Errorf("renewed: %v", r)
	}
	snapshot, err := client.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if content, err := io.ReadAll(snapshot); err != nil || len(content) < 1000 {
		t.Errorf("snapshot: %d bytes, %v", len(content), err)
	}
	elections := v3electionpb.NewElectionClient(client.ActiveConnection())
	observed, err := elections.Observe(ctx, &v3electionpb.LeaderRequest{Name: []byte("e")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := elections.Campaign(ctx, &v3electionpb.CampaignRequest{Name: []byte("e"),
		Lease: int64(lease.ID), Value: []byte("me")}); err != nil {
		t.Fatal(err)
	}
	if r, err := observed.Recv(); err != nil || string(r.Kv.Value) != "me" {
		t.Errorf("observed: %v, %v", r, err)
	}
	session, err := concurrency.NewSession(client)
	if err != nil {
		t.Fatal(err)
	}
	mutex := concurrency.NewMutex(session, "lock/")
	if err := mutex.Lock(ctx); err != nil {
		t.Error(err)
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
	text := post(t, nil, "http://"+at[3]+"/v3/kv/range", nil, `{"key":"aw=="}`)
	if !strings.Contains(text, `"count":"1"`) {
		t.Errorf("as JSON: %s", text)
	}
	if text := get(t, "http://"+at[3]+"/health"); !strings.Contains(text, `"health":"true"`) {
		t.Errorf("health: %s", text)
	}
}

// post is the answer of a server to a request of JSON.
func post(t *testing.T, config *tls.Config, url string, header http.Header, body string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url,
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		request.Header[name] = values
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	defer client.CloseIdleConnections()
	return answerTo(t, client, request)
}

func get(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return answerTo(t, http.DefaultClient, request)
}

func answerTo(t *testing.T, client *http.Client, request *http.Request) string {
	t.Helper()
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestForwardedUsers: at a data node a client has the rights of its own user, known by its token or
// its certificate, and no others, whatever it says of itself.
func TestForwardedUsers(t *testing.T) {
	config, configure := etcdCertificates(t) // of the user "user"
	cluster := startEtcd(t, configure)
	at := cluster.Endpoints()
	ctx, s := t.Context(), steps{t: t}
	first := etcdClient(t, config, at[3])
	s.do(first.UserAddWithOptions(ctx, "user", "", &clientv3.UserAddOptions{NoPassword: true}))
	s.do(first.RoleAdd(ctx, "r"))
	s.do(first.RoleGrantPermission(ctx, "r", "mine", "", clientv3.PermissionType(
		clientv3.PermReadWrite)))
	s.do(first.UserGrantRole(ctx, "user", "r"))
	s.check()
	enableUsers(t, first)
	for i, endpoint := range []string{at[0], at[3]} {
		// By the certificate.
		client := etcdClient(t, config, endpoint)
		if _, err := client.Put(ctx, "mine", "v"); err != nil {
			t.Errorf("server %d: its own key: %v", i, err)
		}
		if _, err := client.Put(ctx, "other", "v"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("server %d: another key: %v", i, err)
		}
		// As JSON a certificate names no user, and a token does.
		put := func(header http.Header) string {
			return post(t, config, "https://"+endpoint+"/v3/kv/put", header, `{"key":"bWluZQ=="}`)
		}
		if got := put(nil); !strings.Contains(got, "user name is empty") {
			t.Errorf("server %d: the certificate of JSON: %s", i, got)
		}
		token, err := first.Authenticate(ctx, "root", "secret")
		if err != nil {
			t.Fatal(err)
		}
		if got := put(http.Header{"Authorization": {token.Token}}); !strings.Contains(got,
			`"revision"`) {
			t.Errorf("server %d: a token as JSON: %s", i, got)
		}
		// By the password.
		root := etcdUser(t, config, "root", "secret", endpoint)
		if _, err := root.Put(ctx, "other", "v"); err != nil {
			t.Errorf("server %d: root: %v", i, err)
		}
		if _, err := root.MemberList(ctx); err != nil {
			t.Errorf("server %d: root lists members: %v", i, err)
		}
		if _, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, TLS: config,
			Username: "root", Password: "wrong", DialTimeout: 5 * time.Second}); !errors.Is(err,
			rpctypes.ErrAuthFailed) {
			t.Errorf("server %d: a wrong password: %v", i, err)
		}
		// A client that says it is another one.
		for _, forged := range []metadata.MD{
			metadata.Pairs("tidemark-certificate-bin", "root"),
			metadata.Pairs("tidemark-forwarded", "1", "tidemark-certificate-bin", "root"),
			metadata.Pairs("tidemark-forwarded", "1", "tidemark-certificate-bin", "root",
				"tidemark-party-bin", "p"),
		} {
			forging := metadata.NewOutgoingContext(ctx, forged)
			if _, err := client.Put(forging, "other", "v"); err == nil {
				t.Errorf("server %d: forged %v", i, forged)
			}
			if _, err := client.UserAdd(forging, "mallory", "pw"); err == nil {
				t.Errorf("server %d: forged %v adds a user", i, forged)
			}
			header := http.Header{}
			for name, values := range forged {
				header["Grpc-Metadata-"+name] = values
			}
			text := post(t, config, "https://"+endpoint+"/v3/auth/user/add", header,
				`{"name":"mallory","password":"pw"}`)
			var answer struct{ Code int }
			if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Code == 0 {
				t.Errorf("server %d: forged %v as JSON: %s", i, forged, text)
			}
		}
		nobody := config.Clone()
		nobody.Certificates = nil
		if _, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, TLS: nobody,
			Username: "root", Password: "secret", DialTimeout: time.Second}); err == nil {
			t.Errorf("server %d: a client without a certificate", i)
		}
	}
	users, err := etcdUser(t, config, "root", "secret", at[3]).UserList(ctx)
	if err != nil || slices.Contains(users.Users, "mallory") {
		t.Errorf("users: %v, %v", users, err)
	}
}

// TestForwardedCallsHaveMemory: a member counts the memory of a call that is passed on to it, which
// the server that passes it on may have more of.
func TestForwardedCallsHaveMemory(t *testing.T) {
	config, configure := etcdCertificates(t) // by which servers know each other
	cluster := startEtcd(t, func(i int, c *ServerConfig) {
		configure(i, c)
		if c.MemoryLimit = 256 << 20; i == 4 { // counted from 1: the data node
			c.MemoryLimit = 4 << 30
		}
	})
	client := etcdClient(t, config, cluster.Endpoints()[3])
	var compared []clientv3.Cmp
	for range 200_000 {
		compared = append(compared, clientv3.Compare(clientv3.Version(""), "=", 0))
	}
	_, err := client.Txn(t.Context()).If(compared...).Commit()
	if err == nil || !strings.Contains(err.Error(), "request is too large: it takes") {
		t.Errorf("a request that is larger than a member can take: %v", err)
	}
	if _, err := client.Put(t.Context(), "k", "v"); err != nil {
		t.Error(err)
	}
}

// TestForwardedOnce: a server passes on no call that was passed on to it, and says that it has done
// nothing; a call that no member answers was not sent.
func TestForwardedOnce(t *testing.T) {
	cluster := startEtcd(t, nil)
	at := cluster.Endpoints()
	ctx := t.Context()
	put := &pb.PutRequest{Key: []byte("k"), Value: []byte("v")}
	passed := metadata.NewOutgoingContext(ctx, metadata.Pairs("tidemark-forwarded", "1"))
	raw := func(address string) pb.KVClient { // makes each call once
		conn, err := grpc.NewClient(address,
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return pb.NewKVClient(conn)
	}
	node := raw(at[3])
	if _, err := node.Put(passed, put); status.Code(err) != codes.Unavailable ||
		!strings.Contains(err.Error(), "not a member of the core") ||
		!strings.Contains(err.Error(), at[0]) {
		t.Errorf("passed on to a data node: %v", err)
	}
	// A member whose own part does not answer is as a data node; so is one that has no state yet.
	for i := range 3 {
		one := etcdClient(t, nil, at[i])
		if i == 0 {
			cluster.Server(i).etcd.End()
		} else {
			cluster.Server(i).etcd.Ready = func() bool { return false }
		}
		if i == 2 {
			break
		}
		for range 10 {
			if _, err := one.Put(ctx, "k", "v"); err != nil {
				t.Fatalf("member %d passes on: %v", i, err)
			}
		}
	}
	for i, address := range at {
		server := raw(address)
		began := time.Now()
		if _, err := server.Put(ctx, put); !coordpb.IsNotSent(err) {
			t.Errorf("server %d: a write that no member takes: %v", i, err)
		}
		if time.Since(began) > 20*time.Second {
			t.Errorf("server %d: it took %v", i, time.Since(began))
		}
	}
	if _, err := node.Range(ctx, &pb.RangeRequest{Key: []byte("k")}); status.Code(err) !=
		codes.Unavailable || !strings.Contains(err.Error(), at[0]) {
		t.Errorf("a read that no member answers: %v", err)
	}
}

// TestForwardedOutlivesMembers: clients of a data node go on when the member ends that their calls
// are passed on to.
func TestForwardedOutlivesMembers(t *testing.T) {
	cluster := startEtcd(t, nil)
	at := cluster.Endpoints()
	client := etcdClient(t, nil, at[3])
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	watch := client.Watch(ctx, "k")
	lease, err := client.Grant(ctx, 30)
	if err != nil {
		t.Fatal(err)
	}
	alive, err := client.KeepAlive(ctx, lease.ID)
	if err != nil {
		t.Fatal(err)
	}
	if r := <-alive; r == nil {
		t.Fatal("not renewed")
	}
	if _, err := client.Put(ctx, "k", "before"); err != nil {
		t.Fatal(err)
	}
	if r := <-watch; len(r.Events) != 1 {
		t.Fatal(r)
	}
	through := slices.Index(at, cluster.Server(3).etcd.forwarder.Member())
	if through < 0 {
		t.Fatal("no member answers")
	}
	if err := cluster.Server(through).Close(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(ctx, "k", "after"); err != nil {
		t.Errorf("a write: %v", err)
	}
	if got, err := client.Get(ctx, "k"); err != nil || !bytes.Equal(got.Kvs[0].Value,
		[]byte("after")) {
		t.Errorf("a read: %v, %v", got, err)
	}
	if r := <-watch; r.Err() != nil || len(r.Events) != 1 ||
		string(r.Events[0].Kv.Value) != "after" {
		t.Errorf("the watch goes on: %v", r)
	}
	if r, err := client.KeepAliveOnce(ctx, lease.ID); err != nil || r.TTL != 30 {
		t.Errorf("renewed: %v, %v", r, err)
	}
}

// TestStartingServerIsNoLearner: a server that has not become a member, or has no state yet, and
// reaches no other member, says that nothing was sent, and never that it is a learner. A call that
// waits there is answered when the server has its state.
func TestStartingServerIsNoLearner(t *testing.T) {
	server, _ := candidate(t, []string{"127.0.0.1:1"})
	conn, err := grpc.NewClient(server.config.Advertise,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	put := &pb.PutRequest{Key: []byte("k"), Value: []byte("v")}
	if _, err := pb.NewKVClient(conn).Put(t.Context(), put); !coordpb.IsNotSent(err) {
		t.Errorf("a write at a server that starts: %v", err)
	}
	if _, err := pb.NewLeaseClient(conn).LeaseGrant(t.Context(),
		&pb.LeaseGrantRequest{TTL: 5}); !coordpb.IsNotSent(err) {
		t.Errorf("a lease at a server that starts: %v", err)
	}

	cluster, err := StartCluster(t.Context(), ClusterConfig{Dir: t.TempDir(), Nodes: 1, Cores: 1,
		Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	if err := cluster.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	var filled, asked atomic.Bool
	cluster.Server(0).etcd.Ready = func() bool {
		asked.Store(true)
		return filled.Load()
	}
	client := etcdClient(t, nil, cluster.Endpoints()...)
	done := make(chan error, 1)
	go func() {
		_, err := client.Put(t.Context(), "k", "v")
		done <- err
	}()
	awaitTrue(t, "the call has come", asked.Load)
	filled.Store(true)
	if err := <-done; err != nil {
		t.Errorf("a write at a server that comes to its state: %v", err)
	}
}
