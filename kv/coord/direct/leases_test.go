package direct_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/kv/coord/direct"
)

// counted opens a client whose renewals go past gRPC, and counts streams of renewals by gRPC.
func counted(tb testing.TB, with clientv3.Config) (*clientv3.Client, *direct.Calls,
	*atomic.Int32) {
	tb.Helper()
	streams := new(atomic.Int32)
	calls := direct.New(direct.Config{})
	with.Logger = zap.NewNop()
	with.DialOptions = append(calls.DialOptions(), grpc.WithChainStreamInterceptor(
		func(ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn, method string,
			open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
			if method == pb.Lease_LeaseKeepAlive_FullMethodName {
				streams.Add(1)
			}
			return open(ctx, d, conn, method, options...)
		}))
	client, err := clientv3.New(with)
	if err != nil {
		tb.Fatal(err)
	}
	calls.Begin(client.Endpoints)
	tb.Cleanup(func() {
		calls.Close()
		_ = client.Close()
	})
	return client, calls, streams
}

// leavesNothing has the test fail that leaves a goroutine when its clients and servers are closed.
func leavesNothing(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
}

// ready is a client whose calls go by gRPC, of a coordination store that answers.
func ready(tb testing.TB, addresses []string) *clientv3.Client {
	tb.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: addresses, Logger: zap.NewNop()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = client.Close() })
	ctx, cancel := context.WithTimeout(tb.Context(), 30*time.Second)
	defer cancel()
	for {
		_, err := client.Get(ctx, "none")
		if err == nil {
			return client
		}
		if ctx.Err() != nil {
			tb.Fatalf("the store does not answer within 30 s: %v", err)
		}
	}
}

// alive are leases that etcd's client keeps alive.
type alive struct {
	ids     []clientv3.LeaseID
	answers []atomic.Int64
	ended   atomic.Int64
	running sync.WaitGroup
	cancel  context.CancelFunc
}

// keepAlive grants leases, and keeps them alive until the test ends.
func keepAlive(t *testing.T, client *clientv3.Client, n int, ttl int64) *alive {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	a := &alive{ids: make([]clientv3.LeaseID, n), answers: make([]atomic.Int64, n), cancel: cancel}
	t.Cleanup(a.stop)
	var granting sync.WaitGroup
	for first := range 32 {
		granting.Go(func() {
			for i := first; i < n; i += 32 {
				granted, err := client.Grant(ctx, ttl)
				if err != nil {
					t.Error(err)
					return
				}
				a.ids[i] = granted.ID
				answers, err := client.KeepAlive(ctx, granted.ID)
				if err != nil {
					t.Error(err)
					return
				}
				a.running.Go(func() {
					for r := range answers {
						if r.ID != granted.ID || r.TTL != ttl || r.Revision == 0 || r.ClusterId == 0 {
							t.Errorf("lease %d of %d s: %v", granted.ID, ttl, r)
						}
						a.answers[i].Add(1)
					}
					a.ended.Add(1)
				})
			}
		})
	}
	granting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return a
}

func (a *alive) stop() {
	a.cancel()
	a.running.Wait()
}

// await waits until each lease was renewed so many times more, and fails if one is lost.
func (a *alive) await(t *testing.T, more int64) {
	t.Helper()
	want := make([]int64, len(a.answers))
	for i := range want {
		want[i] = a.answers[i].Load() + more
	}
	ticker, limit := time.NewTicker(20*time.Millisecond), time.NewTimer(time.Minute)
	defer ticker.Stop()
	defer limit.Stop()
	for i := 0; i < len(want); {
		if n := a.ended.Load(); n > 0 {
			t.Fatalf("%d of %d leases were lost", n, len(want))
		}
		if a.answers[i].Load() >= want[i] {
			i++
			continue
		}
		select {
		case <-ticker.C:
		case <-limit.C:
			t.Fatalf("a lease was not renewed within a minute")
		}
	}
}

// Thousands of leases are kept alive past gRPC, from the first on.
func TestLeasesAreKeptAlive(t *testing.T) {
	leavesNothing(t)
	addresses, _ := startCore(t, 1)
	ready(t, addresses)
	client, _, streams := counted(t, clientv3.Config{Endpoints: addresses})
	a := keepAlive(t, client, 3000, 9)
	a.await(t, 2)
	if n := streams.Load(); n > 0 {
		t.Errorf("%d streams of renewals went by gRPC", n)
	}
	// A lease that is revoked ends its renewals, and no other's.
	if _, err := client.Revoke(t.Context(), a.ids[0]); err != nil {
		t.Fatal(err)
	}
	if r, err := client.KeepAliveOnce(t.Context(), a.ids[0]); err == nil {
		t.Errorf("a revoked lease was renewed: %v", r)
	}
	limit := time.After(30 * time.Second)
	for a.ended.Load() == 0 {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-limit:
			t.Fatal("the renewals of a revoked lease go on")
		}
	}
	if n := a.ended.Load(); n != 1 {
		t.Errorf("%d leases have ended, want 1", n)
	}
}

// ask sends renewals on a stream, and gives what came on it.
func ask(t *testing.T, client *clientv3.Client, ids []int64) (all []*pb.LeaseKeepAliveResponse,
	err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	stream, err := pb.NewLeaseClient(client.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var sending sync.WaitGroup
	defer sending.Wait()
	sending.Go(func() {
		for _, id := range ids {
			if stream.Send(&pb.LeaseKeepAliveRequest{ID: id}) != nil {
				break // what is received says why
			}
		}
		_ = stream.CloseSend()
	})
	for {
		r, err := stream.Recv()
		if err != nil {
			return all, err
		}
		all = append(all, r)
	}
}

// The answers past gRPC are those by gRPC.
func TestRenewalsAreAnsweredAsByGRPC(t *testing.T) {
	leavesNothing(t)
	addresses, _ := startCore(t, 1)
	by := ready(t, addresses)
	past, _, streams := counted(t, clientv3.Config{Endpoints: addresses})
	var ids []int64
	for i := range int64(300) {
		if i%3 > 0 { // others are of no lease
			if _, err := pb.NewLeaseClient(past.ActiveConnection()).LeaseGrant(t.Context(),
				&pb.LeaseGrantRequest{ID: i + 1, TTL: 600 + i}); err != nil {
				t.Fatal(err)
			}
		}
		ids = append(ids, i+1, (i*7)%300+1)
	}
	ids = slices.Concat(ids, ids, ids, ids, ids, ids) // more than one call renews
	got, err := ask(t, past, ids)
	if err.Error() != "EOF" || streams.Load() > 0 {
		t.Fatalf("%v, %d streams by gRPC", err, streams.Load())
	}
	want, err := ask(t, by, ids)
	if err.Error() != "EOF" || len(got) != len(want) || len(want) != len(ids) {
		t.Fatalf("%v, %d answers, want %d", err, len(got), len(want))
	}
	for i := range want {
		if !proto.Equal(got[i], want[i]) {
			t.Fatalf("answer %d is %v, want %v", i, got[i], want[i])
		}
	}
}

// When the server that is called stops, its streams end, and the leases are kept alive at another.
func TestLeasesOutliveTheServer(t *testing.T) {
	leavesNothing(t)
	addresses, servers := startCore(t, 3)
	ready(t, addresses)
	client, calls, _ := counted(t, clientv3.Config{Endpoints: addresses})
	a := keepAlive(t, client, 500, 12)
	a.await(t, 1)
	await(t, client, "a direct connection", func() bool { return calls.Server() != "" })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	stream, err := pb.NewLeaseClient(client.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	called := calls.Server()
	if err := servers[slices.Index(addresses, called)].Close(ctx); err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(a.ids[0])})
	for err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a stream of the server that stopped: %v", err)
	}
	a.await(t, 2)
	await(t, client, "another direct connection", func() bool {
		return calls.Server() != "" && calls.Server() != called
	})
}

// A user without the right to write the keys of a lease may not renew it: by the same error as by
// gRPC, behind the answers to what came before.
func TestRenewalsOfUsers(t *testing.T) {
	leavesNothing(t)
	addresses, _ := startCore(t, 1)
	ctx := t.Context()
	root := ready(t, addresses)
	var errs []error
	do := func(_ any, err error) { errs = append(errs, err) }
	grant := func(id int64, key string) {
		do(pb.NewLeaseClient(root.ActiveConnection()).LeaseGrant(ctx,
			&pb.LeaseGrantRequest{ID: id, TTL: 600}))
		do(root.Put(ctx, key, "", clientv3.WithLease(clientv3.LeaseID(id))))
	}
	grant(1, "u/1")
	grant(2, "u/2")
	grant(3, "secret")
	do(root.UserAdd(ctx, "root", "secret"))
	do(root.UserGrantRole(ctx, "root", "root"))
	do(root.UserAdd(ctx, "u", "pw"))
	do(root.RoleAdd(ctx, "r"))
	do(root.UserGrantRole(ctx, "u", "r"))
	do(root.RoleGrantPermission(ctx, "r", "u/", "u0",
		clientv3.PermissionType(clientv3.PermReadWrite)))
	do(root.AuthEnable(ctx))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		user     string
		ids      []int64
		answered int
		code     codes.Code
	}{
		{"u", []int64{1, 2, 1}, 3, codes.Unknown}, // the end of the stream
		{"u", []int64{1, 2, 3, 1}, 2, codes.PermissionDenied},
		{"u", []int64{3, 1}, 0, codes.PermissionDenied},
		{"", []int64{1}, 0, codes.InvalidArgument},
	} {
		config := clientv3.Config{Endpoints: addresses, Logger: zap.NewNop()}
		if c.user != "" {
			config.Username, config.Password = c.user, "pw"
		}
		by, err := clientv3.New(config)
		if err != nil {
			t.Fatal(err)
		}
		past, _, streams := counted(t, config)
		for range 2 { // however they share calls
			want, wantErr := ask(t, by, c.ids)
			got, gotErr := ask(t, past, c.ids)
			if len(want) != c.answered || status.Code(wantErr) != c.code {
				t.Fatalf("%v by gRPC: %d answers, %v", c, len(want), wantErr)
			}
			if len(got) != len(want) || gotErr.Error() != wantErr.Error() {
				t.Fatalf("%v: %d answers, %v; by gRPC %d, %v", c, len(got), gotErr, len(want), wantErr)
			}
		}
		if n := streams.Load(); n > 0 {
			t.Errorf("%v: %d streams by gRPC", c, n)
		}
		_ = by.Close()
	}
}
