package forward

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
	"github.com/tidemarkdb/tidemark/rpc/limit"
)

// scripted is a member of the core that does what a test says.
type scripted struct {
	pb.UnimplementedKVServer
	pb.UnimplementedWatchServer
	pb.UnimplementedMaintenanceServer
	get   func(*pb.RangeRequest) (*pb.RangeResponse, error)
	put   func(context.Context) error
	watch func(pb.Watch_WatchServer) error
	// id is the member's, and leader that of the member that it believes to lead; 0: of none.
	id, leader uint64
	move       func() error
	// healthy is what the member says of its health; nil: it knows of no health.
	healthy func(ctx context.Context, service string) error
}

// Status implements pb.MaintenanceServer.
func (s *scripted) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{Header: &pb.ResponseHeader{MemberId: s.id}, Leader: s.leader}, nil
}

// MoveLeader implements pb.MaintenanceServer.
func (s *scripted) MoveLeader(
	context.Context, *pb.MoveLeaderRequest,
) (*pb.MoveLeaderResponse, error) {
	return &pb.MoveLeaderResponse{}, s.move()
}

// scriptedHealth is the Health service of a member.
type scriptedHealth struct {
	grpc_health_v1.UnimplementedHealthServer
	of *scripted
}

// Check implements grpc_health_v1.HealthServer.
func (s scriptedHealth) Check(
	ctx context.Context, r *grpc_health_v1.HealthCheckRequest,
) (*grpc_health_v1.HealthCheckResponse, error) {
	if s.of.healthy == nil {
		return nil, status.Error(codes.NotFound, "unknown service")
	}
	return &grpc_health_v1.HealthCheckResponse{}, s.of.healthy(ctx, r.Service)
}

// Range implements pb.KVServer.
func (s *scripted) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if s.leader == 0 && len(metadata.ValueFromIncomingContext(ctx,
		rpctypes.MetadataRequireLeaderKey)) > 0 {
		return nil, rpctypes.ErrGRPCNoLeader
	}
	if len(r.Key) == 0 {
		return nil, status.Error(codes.InvalidArgument, "etcdserver: key is not provided")
	}
	return s.get(r)
}

// Put implements pb.KVServer.
func (s *scripted) Put(ctx context.Context, _ *pb.PutRequest) (*pb.PutResponse, error) {
	return &pb.PutResponse{}, s.put(ctx)
}

// Watch implements pb.WatchServer.
func (s *scripted) Watch(stream pb.Watch_WatchServer) error { return s.watch(stream) }

// serve serves on a free port of this machine until the test ends.
func serve(t *testing.T, c rpc.ServerConfig, register func(grpc.ServiceRegistrar)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, l, c, register)
}

// serveOn is serve with a listener.
func serveOn(t *testing.T, l net.Listener, c rpc.ServerConfig,
	register func(grpc.ServiceRegistrar)) string {
	s := rpc.NewServer(c)
	register(s)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Stop(); serving.Wait() })
	return l.Addr().String()
}

// serveMember has a member serve, whose connections have so many calls at a time.
func serveMember(t *testing.T, streams uint32, s *scripted) string {
	if s.leader == 0 && s.id == 0 {
		s.leader = 1
	}
	return serve(t, rpc.ServerConfig{MaxStreams: streams}, s.register)
}

func (s *scripted) register(r grpc.ServiceRegistrar) {
	pb.RegisterKVServer(r, s)
	pb.RegisterWatchServer(r, s)
	pb.RegisterMaintenanceServer(r, s)
	grpc_health_v1.RegisterHealthServer(r, scriptedHealth{of: s})
}

// passesOn makes a Forwarder to members, with so many bytes for large answers and for requests.
func passesOn(t *testing.T, answers, bytes int64, members ...string) *Forwarder {
	t.Helper()
	f := New(Config{Members: func() []string { return members },
		Dialer: func() *client.Dialer { return client.NewDialer(client.DialerConfig{}) },
		Local: func(string) (*grpc.ServiceDesc, any, bool) {
			return nil, nil, false
		},
		Forwarded: func(context.Context) bool { return false },
		Outgoing:  func(ctx context.Context) context.Context { return ctx },
		Refusal:   func() error { return status.Error(codes.Unavailable, "no member") },
		Party:     authn.PrincipalOfCall, Answers: limit.NewResponseBudget(answers), Bytes: bytes,
		Random: func() uint64 { return 0 }})
	t.Cleanup(f.Close)
	return f
}

// clientOf is a client of a server that passes calls on.
func clientOf(t *testing.T, f *Forwarder) *grpc.ClientConn {
	t.Helper()
	address := serve(t, rpc.ServerConfig{}, func(r grpc.ServiceRegistrar) {
		r.RegisterService(f.Describe(&pb.KV_ServiceDesc), nil)
		r.RegisterService(f.Describe(&pb.Watch_ServiceDesc), nil)
	})
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func create(id int64) *pb.WatchRequest {
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
		CreateRequest: &pb.WatchCreateRequest{Key: []byte("k"), WatchId: id}}}
}

// A stream that a member refuses goes to the next one, with all that the client has sent. One that
// has been answered ends with its member.
func TestRefusedStreamGoesOn(t *testing.T) {
	const messages = 3
	took := make(chan struct{})
	refusing := serveMember(t, 0, &scripted{watch: func(s pb.Watch_WatchServer) error {
		for range messages {
			if _, err := s.Recv(); err != nil {
				return err
			}
		}
		close(took)
		s.SetTrailer(NotServed())
		return status.Error(codes.Unavailable, "etcdserver: not a member any more")
	}})
	stopping := make(chan struct{})
	serving := serveMember(t, 0, &scripted{watch: func(s pb.Watch_WatchServer) error {
		for range messages {
			r, err := s.Recv()
			if err == nil {
				err = s.Send(&pb.WatchResponse{WatchId: r.GetCreateRequest().GetWatchId()})
			}
			if err != nil {
				return err
			}
		}
		if _, err := s.Recv(); !errors.Is(err, io.EOF) {
			return status.Errorf(codes.Internal, "after all messages: %v", err)
		}
		<-stopping
		return status.Error(codes.Unavailable, "etcdserver: server stopped")
	}})
	f := passesOn(t, 512<<20, 0, refusing, serving)
	stream, err := pb.NewWatchClient(clientOf(t, f)).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for id := range int64(messages) {
		if err := stream.Send(create(id)); err != nil {
			t.Fatal(err)
		}
	}
	<-took
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for id := range int64(messages) {
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if r.WatchId != id {
			t.Errorf("the answer is to %d, want %d", r.WatchId, id)
		}
	}
	if n := f.requests.Held(); n != 0 {
		t.Errorf("%d bytes are kept of a stream that is answered", n)
	}
	close(stopping)
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable ||
		!strings.Contains(err.Error(), "server stopped") {
		t.Errorf("when the member ends: %v", err)
	}
}

// A stream of which not all is kept that the client has sent ends when its member refuses it.
func TestRefusedStreamThatIsNotKept(t *testing.T) {
	member := serveMember(t, 0, &scripted{watch: func(s pb.Watch_WatchServer) error {
		for range maxKept + 1 {
			if _, err := s.Recv(); err != nil {
				return err
			}
		}
		return status.Error(codes.Unavailable, "etcdserver: server stopped")
	}})
	f := passesOn(t, 512<<20, 0, member)
	stream, err := pb.NewWatchClient(clientOf(t, f)).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for id := range int64(maxKept + 1) {
		if err := stream.Send(create(id)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	if n := f.requests.Held(); n != 0 {
		t.Errorf("%d bytes are kept", n)
	}
}

// A call whose time is over before it was begun at a member was not sent, whether the connection to
// the member is not there yet, or has as many calls as the member takes.
func TestShortCallsAreNotSent(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	entered, gate := make(chan struct{}), make(chan struct{})
	full := serveMember(t, 1, &scripted{put: func(context.Context) error {
		entered <- struct{}{}
		<-gate
		return nil
	}})
	put := methodOf(pb.KV_ServiceDesc.ServiceName, "Put", 1)
	short := func(f *Forwarder) error {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		_, err := f.unary(ctx, put, &pb.PutRequest{Key: []byte("k")})
		return err
	}
	if err := short(passesOn(t, 512<<20, 0, silent.Addr().String())); !coordpb.IsNotSent(err) {
		t.Errorf("at a member that says nothing: %v", err)
	}
	f := passesOn(t, 512<<20, 0, full)
	var first sync.WaitGroup
	first.Go(func() {
		if _, err := f.unary(t.Context(), put, &pb.PutRequest{Key: []byte("k")}); err != nil {
			t.Error(err)
		}
	})
	<-entered
	if err := short(f); !coordpb.IsNotSent(err) {
		t.Errorf("at a member that takes no more calls: %v", err)
	}
	close(gate)
	first.Wait()
}

// What is too large for this server is refused for good, with the number: a request by what it
// takes when it is decoded, and an answer by what there is for all.
func TestTooLargeForThisServer(t *testing.T) {
	const limit = 8 << 20
	member := serveMember(t, 0, &scripted{put: func(context.Context) error { return nil },
		get: func(r *pb.RangeRequest) (*pb.RangeResponse, error) {
			return &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{{Value: make([]byte, r.Limit)}}}, nil
		}})
	f := passesOn(t, limit, limit, member)
	client := pb.NewKVClient(clientOf(t, f))
	many := &pb.TxnRequest{Compare: make([]*pb.Compare, 50_000)}
	for i := range many.Compare {
		many.Compare[i] = &pb.Compare{}
	}
	if _, err := client.Txn(t.Context(), many); status.Code(err) != codes.InvalidArgument ||
		!strings.Contains(err.Error(), "request is too large: it takes 65") {
		t.Errorf("many parts: %v", err)
	}
	for range 3 {
		r, err := client.Range(t.Context(), &pb.RangeRequest{Key: []byte("k"), Limit: limit * 3 / 4})
		if err != nil || len(r.Kvs[0].Value) != limit*3/4 {
			t.Fatalf("more than a party's share: %v", err)
		}
		for f.config.Answers.Held() > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	_, err := client.Range(t.Context(), &pb.RangeRequest{Key: []byte("k"), Limit: 2 * limit})
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "8388608") ||
		!strings.Contains(err.Error(), "--memory-limit") {
		t.Errorf("more than there is for all: %v", err)
	}
}

// Of messages that are larger than what may wait, one waits at a time.
func TestOneLargeMessageWaits(t *testing.T) {
	f := passesOn(t, 16<<20, 9<<20)
	ctx := limit.Leaves(peer.NewContext(metadata.NewIncomingContext(t.Context(), nil), &peer.Peer{
		Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}}))
	message := &pb.SnapshotResponse{Blob: make([]byte, 6<<20)}
	first, err := f.count(ctx, message)
	if err != nil {
		t.Fatal(err)
	}
	limited, cancel := context.WithCancel(ctx)
	waits := make(chan error)
	go func() {
		_, err := f.count(limited, message)
		waits <- err
	}()
	for f.waiting.Held() == 0 {
		time.Sleep(time.Millisecond)
	}
	if _, err := f.count(ctx, message); status.Code(err) != codes.Unavailable {
		t.Errorf("a second one that waits: %v", err)
	}
	cancel()
	if err := <-waits; !errors.Is(err, context.Canceled) {
		t.Errorf("the first one that waits: %v", err)
	}
	first.(interface {
		proto.Message
		Sent()
	}).Sent()
	if _, err := f.count(ctx, message); err != nil {
		t.Errorf("when there is room: %v", err)
	}
}

// The health of a server counts among the calls of the host that asks for it.
func TestHealthIsOfAParty(t *testing.T) {
	var of []string
	f := passesOn(t, 512<<20, 0, serveMember(t, 0, &scripted{}))
	f.config.Party = func(context.Context) string { of = append(of, "p"); return "p" }
	if err := f.Healthy(t.Context(), true, nil); err != nil {
		t.Error(err)
	}
	if len(of) != 1 {
		t.Errorf("the party was asked for %d times", len(of))
	}
}
