package driver

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/tidemarkdb/tidemark/kv/coord/direct"
)

// DialEtcd connects to the address (host:port) of a server.
type DialEtcd func(ctx context.Context, address string) (net.Conn, error)

// EtcdService opens clients of a coordination service: etcd's own. The first one is as it is, the
// second one makes calls past gRPC (kv/coord/direct), and so on in turn, so that faults meet both
// ways at the same time. It is safe for concurrent use. The exported fields are set before the
// first Open.
type EtcdService struct {
	// Endpoints are addresses of servers (host:port).
	Endpoints []string
	// Dialer gives what connects the client of a number, from 1 on; nil: TCP.
	Dialer func(number int64) DialEtcd

	opened atomic.Int64
	// plain are the calls of clients that make none past gRPC.
	plain atomic.Uint64
	mu    struct {
		sync.Mutex
		// open are those of the other clients that have not hung up.
		open map[*direct.Calls]bool
		// ended are the calls of those that have.
		ended direct.Stats
	}
}

// Open connects one more client, which hangUp ends; the client is not used any more then. It does
// not wait for a server.
func (s *EtcdService) Open(context.Context) (client *clientv3.Client, hangUp func(), err error) {
	number := s.opened.Add(1)
	var options []grpc.DialOption
	var dial DialEtcd
	if s.Dialer != nil {
		dial = s.Dialer(number)
		options = append(options, grpc.WithContextDialer(dial))
	}
	if number%2 == 1 {
		options = append(options, grpc.WithChainUnaryInterceptor(s.countPlain))
		client, err = clientv3.New(etcdConfig(s.Endpoints, options))
		if err != nil {
			return nil, nil, err
		}
		return client, func() { _ = client.Close() }, nil
	}
	calls := direct.New(direct.Config{Dial: dial})
	client, err = clientv3.New(etcdConfig(s.Endpoints, append(options, calls.DialOptions()...)))
	if err != nil {
		calls.Close()
		return nil, nil, err
	}
	s.mu.Lock()
	if s.mu.open == nil {
		s.mu.open = make(map[*direct.Calls]bool)
	}
	s.mu.open[calls] = true
	s.mu.Unlock()
	calls.Begin(client.Endpoints)
	return client, func() {
		_ = client.Close()
		calls.Close()
		s.forget(calls)
	}, nil
}

// forget keeps what the calls of a client were that has hung up.
func (s *EtcdService) forget(calls *direct.Calls) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.open[calls] {
		delete(s.mu.open, calls)
		s.mu.ended = plus(s.mu.ended, calls.Stats())
	}
}

// Calls is how many calls of all clients went past gRPC, and how many by gRPC, without those of
// streams.
func (s *EtcdService) Calls() direct.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := plus(s.mu.ended, direct.Stats{GRPC: s.plain.Load()})
	for calls := range s.mu.open {
		sum = plus(sum, calls.Stats())
	}
	return sum
}

func plus(a, b direct.Stats) direct.Stats {
	return direct.Stats{Direct: a.Direct + b.Direct, GRPC: a.GRPC + b.GRPC}
}

// countPlain implements grpc.UnaryClientInterceptor.
func (s *EtcdService) countPlain(ctx context.Context, method string, request, answer any,
	conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	s.plain.Add(1)
	return invoke(ctx, method, request, answer, conn, options...)
}

// etcdConfig is how workloads connect. Connections that were lost are made again within half a
// second, as those of the SDK.
func etcdConfig(endpoints []string, options []grpc.DialOption) clientv3.Config {
	again := backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
		MaxDelay: 500 * time.Millisecond}
	return clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop(),
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second,
		DialOptions: append([]grpc.DialOption{grpc.WithNoProxy(), grpc.WithConnectParams(
			grpc.ConnectParams{Backoff: again, MinConnectTimeout: 2 * time.Second})}, options...)}
}
