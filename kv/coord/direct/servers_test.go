package direct_test

import (
	"context"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/kv/coord/direct"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// replica is a server in memory that has no keys, of which some are called past gRPC.
type replica struct {
	pb.UnimplementedKVServer

	mu sync.Mutex
	// silent: calls about keys wait until their deadline, or for as long as a member gives them.
	silent bool
	// leaderless: it knows of no leader.
	leaderless bool
	// better is the server that it names as better.
	better string
	// asked counts calls about keys; metadata is that of the last.
	asked    int
	metadata metadata.MD
}

// Range implements etcdserverpb.KVServer.
func (r *replica) Range(ctx context.Context, q *pb.RangeRequest) (*pb.RangeResponse, error) {
	r.mu.Lock()
	silent, leaderless := r.silent, r.leaderless
	md, _ := metadata.FromIncomingContext(ctx)
	if len(q.Key) > 0 {
		r.asked++
		r.metadata = md
	}
	r.mu.Unlock()
	if leaderless && len(md.Get(rpctypes.MetadataRequireLeaderKey)) > 0 {
		return nil, rpctypes.ErrGRPCNoLeader
	}
	if len(q.Key) == 0 {
		return nil, rpctypes.ErrGRPCEmptyKey
	}
	if silent {
		ctx, cancel := context.WithTimeout(ctx, 7*time.Second)
		defer cancel()
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return &pb.RangeResponse{}, nil
}

// set changes how it answers.
func (r *replica) set(change func(*replica)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r)
}

// take is how often it was called about keys since this was asked last.
func (r *replica) take() (asked int) {
	r.set(func(r *replica) { asked, r.asked = r.asked, 0 })
	return asked
}

// serve serves at an address until the test ends, or what it returns is called.
func (r *replica) serve(t *testing.T, net *memnet.Network, address string) (stop func()) {
	t.Helper()
	calls := rpc.NewCallServer(rpc.CallServerConfig{Better: func() (better string) {
		r.set(func(r *replica) { better = r.better })
		return better
	}})
	pb.RegisterKVServer(calls, r)
	s := rpc.NewServer(rpc.ServerConfig{})
	s.ServeClients(rpc.NewBatchServer(rpc.BatchServerConfig{Calls: calls,
		Handle: func(uint64, []*kvpb.Request, func(*kvpb.Response)) {}}))
	pb.RegisterKVServer(s, r)
	listener, err := net.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = s.Serve(listener) })
	stop = sync.OnceFunc(func() {
		s.Stop()
		running.Wait()
		calls.Close()
	})
	t.Cleanup(stop)
	return stop
}

// reader is a client of replicas.
type reader struct {
	*direct.Calls
	kv pb.KVClient
}

// newReader makes a client whose calls by gRPC go to one server, and past gRPC to those at the
// endpoints.
func newReader(t *testing.T, net *memnet.Network, grpcAt string, endpoints func() []string) reader {
	t.Helper()
	dial := net.Dialer("c")
	c := direct.New(direct.Config{Dial: dial})
	t.Cleanup(c.Close)
	conn, err := grpc.NewClient("passthrough:///"+grpcAt, append(c.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c.Begin(endpoints)
	return reader{Calls: c, kv: pb.NewKVClient(conn)}
}

// read reads a key with a timeout.
func (r reader) read(t *testing.T, timeout time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	_, err := r.kv.Range(ctx, &pb.RangeRequest{Key: []byte("k")})
	return err
}

// readFor reads with pauses, and gives how many reads failed.
func (r reader) readFor(t *testing.T, d time.Duration) (failed int) {
	t.Helper()
	for began := time.Now(); time.Since(began) < d; time.Sleep(50 * time.Millisecond) {
		if r.read(t, 5*time.Second) != nil {
			failed++
		}
	}
	return failed
}
