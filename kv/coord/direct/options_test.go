package direct_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/tidemarkdb/tidemark/kv/coord/direct"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// named are credentials of a call.
type named struct{}

func (named) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"token": "another"}, nil
}

func (named) RequireTransportSecurity() bool { return false }

// What etcd's client says in all its calls does not have them go by gRPC. What else a caller says
// is heard by the server, for which the call goes by gRPC.
func TestCallsThatSayMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memnet.New()
		server := &replica{}
		server.serve(t, net, "s:1")
		calls := direct.New(direct.Config{Dial: net.Dialer("c")})
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{"s:1"}, Logger: zap.NewNop(),
			MaxCallSendMsgSize: 1 << 20, MaxCallRecvMsgSize: 2 << 20,
			DialOptions: append(calls.DialOptions(), grpc.WithContextDialer(net.Dialer("c")))})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = client.Close() }()
		defer calls.Close()
		calls.Begin(client.Endpoints)
		for calls.Server() == "" {
			if _, err := client.Get(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		kv := pb.NewKVClient(client.ActiveConnection())
		get := func(ctx context.Context, options ...grpc.CallOption) error {
			_, err := kv.Range(ctx, &pb.RangeRequest{Key: []byte("k")}, options...)
			return err
		}
		ctx := t.Context()
		with := func(key string) context.Context {
			return metadata.AppendToOutgoingContext(ctx, key, "another")
		}
		var answered peer.Peer
		var header metadata.MD
		for name, c := range map[string]struct {
			do   func() error
			grpc bool
			// key is what the server is told, if that is more than what the client says always.
			key string
		}{
			"get":           {do: func() error { _, err := client.Get(ctx, "k"); return err }},
			"with timeouts": {do: func() error { return get(ctx, grpc.WaitForReady(false)) }},
			"leader": {do: func() error {
				_, err := client.Get(clientv3.WithRequireLeader(ctx), "k")
				return err
			}, key: "hasleader"},
			"token": {do: func() error { _, err := client.Get(with("token"), "k"); return err },
				grpc: true, key: "token"},
			"authorization": {do: func() error { return get(with("Authorization")) },
				grpc: true, key: "authorization"},
			"gateway": {do: func() error { return get(with("grpcgateway-accept")) },
				grpc: true, key: "grpcgateway-accept"},
			"credentials": {do: func() error { return get(ctx, grpc.PerRPCCredentials(named{})) },
				grpc: true, key: "token"},
			"peer":   {do: func() error { return get(ctx, grpc.Peer(&answered)) }, grpc: true},
			"header": {do: func() error { return get(ctx, grpc.Header(&header)) }, grpc: true},
		} {
			before := calls.Stats()
			if err := c.do(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			after := calls.Stats()
			if byGRPC := after.GRPC > before.GRPC; byGRPC != c.grpc {
				t.Errorf("%s: it went by gRPC: %v", name, byGRPC)
			}
			server.set(func(r *replica) {
				if c.key != "" && len(r.metadata.Get(c.key)) == 0 {
					t.Errorf("%s: the server was told %v", name, r.metadata)
				}
			})
		}
		if answered.Addr == nil || len(header) == 0 {
			t.Errorf("peer %v, header %v", answered.Addr, header)
		}
	})
}

// A stream of renewals whose opening names the user of the caller goes by gRPC.
func TestRenewalsThatSayMore(t *testing.T) {
	withFake(t, true, func(t *testing.T, f *fake, c *client) {
		for _, option := range []grpc.CallOption{grpc.EmptyCallOption{},
			grpc.PerRPCCredentials(named{})} {
			ctx := t.Context()
			if _, ok := option.(grpc.EmptyCallOption); ok {
				ctx = metadata.AppendToOutgoingContext(ctx, "token", "another")
			}
			stream, err := c.LeaseKeepAlive(ctx, option)
			if err != nil {
				t.Fatal(err)
			}
			send(t, stream, 7)
			receive(t, stream, map[int64]int64{7: 8}, 7)
		}
		if asked, streams := f.take(); streams != 2 || len(asked) > 0 {
			t.Errorf("%d streams of gRPC, calls for %v leases", streams, asked)
		}
	})
}
