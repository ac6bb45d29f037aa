package etcdapi

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// pastGRPC makes the calls that it can on a connection of requests, all others by gRPC.
type pastGRPC struct {
	grpc.ClientConnInterface
	calls *client.BatchConn
	// made counts the calls past gRPC, other those that were not taken there.
	made, other atomic.Int64
}

// Invoke implements grpc.ClientConnInterface.
func (p *pastGRPC) Invoke(ctx context.Context, method string, request, answer any,
	options ...grpc.CallOption) error {
	md, _ := metadata.FromOutgoingContext(ctx)
	o := client.CallOptions{RequireLeader: len(md.Get(rpctypes.MetadataRequireLeaderKey)) > 0}
	for _, field := range []string{rpctypes.TokenFieldNameSwagger, rpctypes.TokenFieldNameGRPC} {
		if values := md.Get(field); len(values) > 0 {
			if o.Token = strings.TrimPrefix(values[0], "Bearer "); o.Token == "" {
				// A call has no way to show an empty token.
				return p.ClientConnInterface.Invoke(ctx, method, request, answer, options...)
			}
		}
	}
	_, err := p.calls.Call(ctx, method, request.(proto.Message), answer.(proto.Message), o)
	if !errors.Is(err, client.ErrNotCalled) {
		p.made.Add(1)
		return err
	}
	p.other.Add(1)
	return p.ClientConnInterface.Invoke(ctx, method, request, answer, options...)
}

// aboutKeys registers the services about keys and leases only.
type aboutKeys struct{ grpc.ServiceRegistrar }

// RegisterService implements grpc.ServiceRegistrar.
func (r aboutKeys) RegisterService(d *grpc.ServiceDesc, service any) {
	if d.ServiceName == pb.KV_ServiceDesc.ServiceName ||
		d.ServiceName == pb.Lease_ServiceDesc.ServiceName {
		r.ServiceRegistrar.RegisterService(d, service)
	}
}

// serveBeside serves what is served at another address as a server does: by gRPC and past it. Reads
// that come together share.
func serveBeside(t testing.TB, s *served) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	calls := rpc.NewCallServer(rpc.CallServerConfig{
		Quick: func(method string) bool { return method == pb.KV_Range_FullMethodName },
		Share: s.lone.Store.WithSharedRead})
	s.services.Register(aboutKeys{calls})
	server := rpc.NewServer(rpc.ServerConfig{})
	server.ServeClients(rpc.NewBatchServer(rpc.BatchServerConfig{Calls: calls,
		Handle: func(uint64, []*kvpb.Request, func(*kvpb.Response)) {}}))
	s.services.Register(server)
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		server.Stop()
		running.Wait()
		calls.Close()
	})
	return listener.Addr().String()
}

// connectPastGRPC reaches what is served past gRPC.
func connectPastGRPC(t testing.TB, s *served) (*endpoint, *pastGRPC) {
	t.Helper()
	address := serveBeside(t, s)
	dialer := client.NewDialer(client.DialerConfig{})
	var streams atomic.Uint64
	p := &pastGRPC{ClientConnInterface: connect(t, s.address).connection,
		calls: client.NewBatchConn(client.BatchConfig{Dialer: dialer, Address: address, Client: 1,
			Stream: func() uint64 { return streams.Add(1) }})}
	t.Cleanup(func() {
		p.calls.Close()
		_ = dialer.Close()
	})
	return &endpoint{connection: p}, p
}

// newBothPastGRPC is newBoth with ours called past gRPC.
func newBothPastGRPC(t testing.TB) (*both, *pastGRPC) {
	var past *pastGRPC
	b := newBothWith(t, func(s *served) (e *endpoint) {
		e, past = connectPastGRPC(t, s)
		return e
	})
	return b, past
}

// A real etcd answers as ours does past gRPC, to whatever is asked about keys and leases.
func TestLikeEtcdPastGRPC(t *testing.T) {
	b, past := newBothPastGRPC(t)
	q := &requests{Rand: rand.New(rand.NewPCG(*likeEtcdSeed, 1)), b: b}
	for range *likeEtcdRequests / 2 {
		b.ask(q.next())
	}
	for revision := max(1, b.compacted); revision <= b.revision; revision++ {
		b.ask(&pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, Revision: revision})
	}
	if made := past.made.Load(); made < int64(b.done)/2 {
		t.Errorf("%d of %d requests went past gRPC, %d were not taken", made, b.done, past.other.Load())
	}
}

// The same at the limits. What is too large for a call goes by gRPC.
func TestLikeEtcdAtLimitsPastGRPC(t *testing.T) {
	b, past := newBothPastGRPC(t)
	askAtLimits(b)
	if past.made.Load() == 0 || past.other.Load() == 0 {
		t.Errorf("%d requests went past gRPC, %d did not", past.made.Load(), past.other.Load())
	}
}

// The same for users, whoever they are and whatever becomes of their roles meanwhile.
func TestUsersLikeEtcdPastGRPC(t *testing.T) {
	var past *pastGRPC
	b := newBothWithUsers(t, *likeEtcdSeed+1, func(s *served) (e *endpoint) {
		e, past = connectPastGRPC(t, s)
		return e
	})
	b.askAsUsers(*likeEtcdRequests / 2)
	if past.made.Load() == 0 {
		t.Error("no request went past gRPC")
	}
}
