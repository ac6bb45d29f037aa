package embedded

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tidemarkdb/tidemark/bench/proof/reference"
	"github.com/tidemarkdb/tidemark/deploy/certs"
	"github.com/tidemarkdb/tidemark/kv/coord"
)

// etcdClient is an unmodified client of etcd, which knows these addresses and nothing of Tidemark.
func etcdClient(t *testing.T, tlsConfig *tls.Config, endpoints ...string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, TLS: tlsConfig,
		DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
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

// startEtcd starts a cluster of three members of the core, and a data node that is none.
func startEtcd(t *testing.T, configure func(int, *ServerConfig)) *Cluster {
	t.Helper()
	cluster, err := StartCluster(t.Context(), ClusterConfig{Dir: t.TempDir(), Nodes: 4, Cores: 3,
		Listen: "127.0.0.1:0", Configure: configure})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := cluster.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		s := cluster.Server(i)
		awaitTrue(t, "the coordination store has a leader", func() bool {
			part := s.member.coordination()
			if part == nil {
				return false
			}
			l, _ := part.Leadership()
			return l.Leader != 0
		})
	}
	return cluster
}

func awaitTrue(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// TestEtcdClients: unmodified clients of etcd use any server, be it a member of the core or not, on
// the port of everything else.
func TestEtcdClients(t *testing.T) {
	cluster := startEtcd(t, nil)
	at := cluster.Endpoints()
	for i := range 4 { // the last is no member
		t.Run(fmt.Sprint("server ", i), func(t *testing.T) { useEtcd(t, etcdClient(t, nil, at[i]), i) })
	}
	client := etcdClient(t, nil, at[:3]...)
	members, err := client.MemberList(t.Context())
	if err != nil || len(members.Members) != 3 {
		t.Fatal(members, err)
	}
	leader := 0
	sort.Slice(members.Members, func(a, b int) bool {
		of := func(i int) int { return slices.Index(at, members.Members[i].Name) }
		return of(a) < of(b)
	})
	for i := range 3 {
		m, s := members.Members[i], cluster.Server(i)
		if m.ID != uint64(s.directory.Identity().Server) || m.ClientURLs[0] != "http://"+at[i] ||
			m.IsLearner {
			t.Errorf("%v", m)
		}
		answer, err := client.Status(t.Context(), at[i])
		if err != nil || answer.Header.MemberId != m.ID || answer.Leader == 0 || answer.IsLearner {
			t.Fatal(answer, err)
		}
		if answer.Leader == m.ID {
			leader = i
		}
	}
	// The lead is handed to another one, by the member that has it.
	next := members.Members[(leader+1)%3]
	if _, err := etcdClient(t, nil, at[leader]).MoveLeader(t.Context(), next.ID); err != nil {
		t.Fatal(err)
	}
	if answer, err := client.Status(t.Context(), at[(leader+1)%3]); err != nil ||
		answer.Leader != next.ID {
		t.Error(answer, err)
	}
	if _, err := client.MemberRemove(t.Context(), 1); !errors.Is(err, rpctypes.ErrMemberNotFound) {
		t.Error(err)
	}
	if _, err := client.MemberAdd(t.Context(), []string{"http://" + at[0]}); !errors.Is(err,
		rpctypes.ErrPeerURLExist) {
		t.Error(err)
	}
	// A data node tells clients that synchronise their endpoints where the members are; recipes go on
	// there.
	synchronised := etcdClient(t, nil, at[3])
	if err := synchronised.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := synchronised.Put(t.Context(), "k", "v"); err != nil {
		t.Error(err)
	}
	recipes, err := coord.Connect(t.Context(), at[3:4])
	if err != nil {
		t.Fatal(err)
	}
	defer recipes.Close()
	if _, err := recipes.Etcd().Put(t.Context(), "k", "v"); err != nil {
		t.Error(err)
	}
	if endpoints := recipes.Etcd().Endpoints(); len(endpoints) != 3 {
		t.Errorf("recipes go on at %v", endpoints)
	}
	// A client that knows a member as well writes there.
	both := etcdClient(t, nil, at[3], at[0])
	for range 20 {
		if _, err := both.Put(t.Context(), "k", "v"); err != nil {
			t.Errorf("with a data node among the endpoints: %v", err)
		}
	}
}

// useEtcd does what clients do.
func useEtcd(t *testing.T, client *clientv3.Client, i int) {
	ctx := t.Context()
	lease, err := client.Grant(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}
	key := fmt.Sprint("member-", i)
	if _, err := client.Put(ctx, key, "v", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	got, err := client.Get(ctx, "member-", clientv3.WithPrefix())
	if err != nil || got.Count != int64(i+1) || string(got.Kvs[i].Value) != "v" {
		t.Fatal(got, err)
	}
	if r, err := client.KeepAliveOnce(ctx, lease.ID); err != nil || r.TTL != 60 {
		t.Fatal(r, err)
	}
	if r, err := client.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys()); err != nil ||
		r.TTL < 50 || len(r.Keys) != 1 {
		t.Fatal(r, err)
	}
	// As large as they may be.
	if _, err := client.Put(ctx, "large", strings.Repeat("x", 1536<<10-512)); err != nil {
		t.Error(err)
	}
	if got, err := client.Get(ctx, "large"); err != nil || len(got.Kvs[0].Value) != 1536<<10-512 {
		t.Error(err)
	}
	if _, err := client.Put(ctx, "large", strings.Repeat("x", 1600<<10)); !errors.Is(err,
		rpctypes.ErrRequestTooLarge) {
		t.Error(err)
	}
}

// etcdCertificates make the configuration of a client with a certificate, and the servers' part.
func etcdCertificates(t *testing.T) (*tls.Config, func(int, *ServerConfig)) {
	t.Helper()
	dir, now := t.TempDir(), time.Now()
	files := certs.PairOf(dir, "ca")
	server, user := certs.PairOf(dir, "server"), certs.PairOf(dir, "user")
	authority, err := certs.NewAuthority(files, "authority", time.Hour, now)
	if err == nil {
		err = authority.Server(server, []string{"127.0.0.1"}, time.Hour, now)
	}
	if err == nil {
		err = authority.Client(user, "user", time.Hour, now)
	}
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(files.Cert)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	own, err := tls.LoadX509KeyPair(user.Cert, user.Key)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}}
	return config, func(_ int, c *ServerConfig) {
		c.TLSCert, c.TLSKey, c.TLSCA, c.SecretFile = server.Cert, server.Key, files.Cert, ""
	}
}

// TestEtcdClientsWithTLS: the same port, and the same client, with certificates.
func TestEtcdClientsWithTLS(t *testing.T) {
	config, configure := etcdCertificates(t)
	cluster := startEtcd(t, configure)
	client := etcdClient(t, config, cluster.Endpoints()[:3]...)
	useEtcd(t, client, 0)
	members, err := client.MemberList(t.Context())
	if err != nil || !strings.HasPrefix(members.Members[0].ClientURLs[0], "https://127.0.0.1:") {
		t.Error(members, err)
	}
}

// TestEtcdClientsOutliveALeader: a client of a member that does not lead notices nothing but a
// delay when the one that leads ends: no call fails, and each is done once.
func TestEtcdClientsOutliveALeader(t *testing.T) {
	cluster := startEtcd(t, nil)
	leader := 0
	for i := range 3 {
		if cluster.Server(i).LeadsCoordination() {
			leader = i
		}
	}
	client := etcdClient(t, nil, cluster.Endpoints()[(leader+1)%3])
	var done atomic.Int64
	var writing sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		writing.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := client.Put(t.Context(), "k", "v"); err != nil {
					t.Errorf("put: %v", err)
					return
				}
				done.Add(1)
			}
		})
	}
	awaitTrue(t, "writes are done", func() bool { return done.Load() > 20 || t.Failed() })
	if err := cluster.Server(leader).Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	more := done.Load() + 20
	awaitTrue(t, "they go on", func() bool { return done.Load() > more || t.Failed() })
	close(stop)
	writing.Wait()
	got, err := client.Get(t.Context(), "k")
	if err != nil || got.Kvs[0].Version != done.Load() {
		t.Fatalf("%d writes were acknowledged: %v, %v", done.Load(), got, err)
	}
}

// TestEtcdStreams: thousands of streams stay open on one connection, also those on which the client
// has nothing more to say, and calls are answered beside them, as by etcd. Each watch gets its
// event.
func TestEtcdStreams(t *testing.T) {
	t.Run("etcd", func(t *testing.T) {
		etcd := reference.Test(t, reference.Options{Args: []string{"--unsafe-no-fsync"}})
		testManyStreams(t, etcd.Endpoints()[0])
	})
	t.Run("tidemark", func(t *testing.T) {
		testManyStreams(t, startEtcd(t, nil).Endpoints()[0])
	})
}

func testManyStreams(t *testing.T, at string) {
	const streams = 3000 // of each kind
	client := etcdClient(t, nil, at)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	lease, err := client.Grant(ctx, 600)
	if err != nil {
		t.Fatal(err)
	}
	leases := pb.NewLeaseClient(client.ActiveConnection())
	watches := pb.NewWatchClient(client.ActiveConnection())
	create := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
		CreateRequest: &pb.WatchCreateRequest{Key: []byte("k")}}}
	// Both kinds of streams stay open until ctx ends.
	renew := func() error {
		stream, err := leases.LeaseKeepAlive(ctx)
		if err == nil {
			err = stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(lease.ID)})
		}
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	watch := func() (pb.Watch_WatchClient, error) {
		stream, err := watches.Watch(ctx)
		if err == nil {
			err = errors.Join(stream.Send(create), stream.CloseSend())
		}
		if err == nil {
			_, err = stream.Recv()
		}
		return stream, err
	}
	open := make([]pb.Watch_WatchClient, streams)
	var opening sync.WaitGroup
	for worker := range 100 {
		opening.Go(func() {
			for i := worker; i < streams; i += 100 {
				var err error
				if open[i], err = watch(); err == nil {
					err = renew()
				}
				if err != nil {
					t.Errorf("stream %d: %v", i, err)
					return
				}
			}
		})
	}
	if opening.Wait(); t.Failed() {
		return
	}
	if _, err := client.Put(ctx, "k", "v"); err != nil {
		t.Fatal(err)
	}
	for i, stream := range open {
		if r, err := stream.Recv(); err != nil || len(r.Events) != 1 {
			t.Fatalf("watch %d: %v, %v", i, r, err)
		}
	}
}

// TestWatchProgressInterval: a watch without events is told its progress as often as the server is
// configured to tell it, at a member and at a server that is none.
func TestWatchProgressInterval(t *testing.T) {
	cluster := startEtcd(t, func(_ int, c *ServerConfig) {
		c.WatchProgressInterval = LeastWatchProgress
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i, at := range []string{cluster.Endpoints()[0], cluster.Endpoints()[3]} {
		client := etcdClient(t, nil, at)
		told := 0
		for r := range client.Watch(ctx, "k", clientv3.WithProgressNotify()) {
			if r.IsProgressNotify() {
				told++
			}
			if told == 2 {
				break
			}
		}
		if told < 2 {
			t.Errorf("endpoint %d: told %d times: %v", i, told, ctx.Err())
		}
	}
}
