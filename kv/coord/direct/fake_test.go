package direct_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/kv/coord/direct"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// fake is a server at s:1 in memory that has leases of all ids: the id is the term in seconds. By
// gRPC the term is one second more. It is for what a real one does too seldom.
type fake struct {
	coordpb.UnimplementedRenewalsServer
	pb.UnimplementedKVServer
	pb.UnimplementedLeaseServer
	net *memnet.Network

	mu sync.Mutex
	// renew answers RenewAll in place of the fake, if it is set.
	renew func(context.Context, []int64) (*coordpb.RenewAllResponse, error)
	// asked are the numbers of leases of the calls that came.
	asked []int
	// streams counts those of gRPC.
	streams int
}

// Range implements etcdserverpb.KVServer.
func (f *fake) Range(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if len(r.Key) == 0 {
		return nil, rpctypes.ErrGRPCEmptyKey
	}
	return &pb.RangeResponse{}, nil
}

// RenewAll implements coordpb.RenewalsServer.
func (f *fake) RenewAll(
	ctx context.Context, r *coordpb.RenewAllRequest,
) (*coordpb.RenewAllResponse, error) {
	f.mu.Lock()
	f.asked = append(f.asked, len(r.Leases))
	renew := f.renew
	f.mu.Unlock()
	if renew != nil {
		return renew(ctx, r.Leases)
	}
	return &coordpb.RenewAllResponse{Terms: r.Leases}, nil
}

// LeaseKeepAlive implements etcdserverpb.LeaseServer.
func (f *fake) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	f.mu.Lock()
	f.streams++
	f.mu.Unlock()
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := stream.Send(&pb.LeaseKeepAliveResponse{ID: r.ID, TTL: r.ID + 1}); err != nil {
			return err
		}
	}
}

// with has calls of RenewAll answered by a function.
func (f *fake) with(renew func(context.Context, []int64) (*coordpb.RenewAllResponse, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renew = renew
}

// take gives the numbers of leases of the calls that came, and of streams of gRPC, and forgets
// them.
func (f *fake) take() (asked []int, streams int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked, streams = f.asked, f.streams
	f.asked, f.streams = nil, 0
	return asked, streams
}

// serve serves until what it returns is called.
func (f *fake) serve(t *testing.T, renews bool) (stop func()) {
	t.Helper()
	calls := rpc.NewCallServer(rpc.CallServerConfig{})
	pb.RegisterKVServer(calls, f)
	if renews {
		coordpb.RegisterRenewalsServer(calls, f)
	}
	s := rpc.NewServer(rpc.ServerConfig{})
	s.ServeClients(rpc.NewBatchServer(rpc.BatchServerConfig{Calls: calls,
		Handle: func(_ uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) {
			for _, r := range batch {
				reply(&kvpb.Response{Id: r.Id, Error: &kvpb.Error{Code: kvpb.ErrorCode_INVALID_ARGUMENT}})
			}
		}}))
	pb.RegisterLeaseServer(s, f)
	listener, err := f.net.Listen("s:1")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = s.Serve(listener) })
	return sync.OnceFunc(func() {
		s.Stop()
		running.Wait()
		calls.Close()
	})
}

// client is a client of the fake.
type client struct {
	*direct.Calls
	pb.LeaseClient
	conn *grpc.ClientConn
}

func (f *fake) client(t *testing.T) *client {
	t.Helper()
	dial := f.net.Dialer("c")
	c := &client{Calls: direct.New(direct.Config{Dial: dial})}
	var err error
	if c.conn, err = grpc.NewClient("passthrough:///s:1", append(c.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dial))...); err != nil {
		t.Fatal(err)
	}
	c.LeaseClient = pb.NewLeaseClient(c.conn)
	c.Begin(func() []string { return []string{"s:1"} })
	return c
}

func (c *client) close(t *testing.T) {
	t.Helper()
	c.Calls.Close()
	if err := c.conn.Close(); err != nil {
		t.Error(err)
	}
}

// withFake runs a test with a server and a client, in time that is not real. No goroutine outlives
// it: synctest sees to that.
func withFake(t *testing.T, renews bool, test func(*testing.T, *fake, *client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{net: memnet.New()}
		stop := f.serve(t, renews)
		defer stop()
		c := f.client(t)
		defer c.close(t)
		test(t, f, c)
	})
}

// open opens a stream, which ends with the test.
func (c *client) open(t *testing.T) pb.Lease_LeaseKeepAliveClient {
	t.Helper()
	stream, err := c.LeaseKeepAlive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// send sends renewals, which must not wait for answers.
func send(t *testing.T, stream pb.Lease_LeaseKeepAliveClient, ids ...int64) {
	t.Helper()
	for _, id := range ids {
		if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
}

// receive receives the answers to renewals of leases with terms.
func receive(t *testing.T, stream pb.Lease_LeaseKeepAliveClient, terms map[int64]int64,
	ids ...int64) {
	t.Helper()
	for i, id := range ids {
		r, err := stream.Recv()
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		if r.ID != id || r.TTL != terms[id] {
			t.Fatalf("answer %d is of lease %d with %d s, want of %d with %d s", i, r.ID, r.TTL, id,
				terms[id])
		}
	}
}

// numbered are the ids from first to last, and their terms at the fake.
func numbered(first, last, more int64) (ids []int64, terms map[int64]int64) {
	terms = make(map[int64]int64)
	for id := first; id <= last; id++ {
		ids, terms[id] = append(ids, id), id+more
	}
	return ids, terms
}

// fails fails the test unless the next answer is an error with a code.
func fails(t *testing.T, stream pb.Lease_LeaseKeepAliveClient, code codes.Code) {
	t.Helper()
	for range 2 { // it stays so
		if r, err := stream.Recv(); err == nil || status.Code(err) != code {
			t.Fatalf("received %v, %v; want the code %s", r, err, code)
		}
	}
	if <-stream.Context().Done(); stream.Context().Err() == nil {
		t.Fatal("the context of an ended stream goes on")
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{}); fmt.Sprint(err) != "EOF" {
		t.Fatalf("sending on an ended stream: %v; want EOF", err)
	}
}
