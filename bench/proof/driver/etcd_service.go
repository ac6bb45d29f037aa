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

// EtcdService opens etcd's own clients of a coordination service. Every second client makes calls
// that bypass gRPC (kv/coord/direct), so that faults meet both ways at the same time. It is safe
// for concurrent use. The exported fields must be set before the first Open.
type EtcdService struct {
	// Endpoints has addresses of servers (host:port).
	Endpoints []string
	// Dialer returns the dial function of the client with a number. Numbers begin at 1. If Dialer is
	// nil, clients use TCP.
	Dialer func(number int64) DialEtcd

	opened atomic.Int64
	// plain counts the calls of clients whose calls all use gRPC.
	plain atomic.Uint64
	mu    struct {
		sync.Mutex
		// open has the calls of the other clients that are not closed.
		open map[*direct.Calls]bool
		// ended has the counts of the other clients that are closed.
		ended direct.Stats
	}
}

// Open opens one more client. hangUp closes the client, which must not be used any more then. Open
// does not wait for a server.
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

// forget adds the counts of a closed client to ended.
func (s *EtcdService) forget(calls *direct.Calls) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.open[calls] {
		delete(s.mu.open, calls)
		s.mu.ended = plus(s.mu.ended, calls.Stats())
	}
}

// Calls returns how many calls of all clients bypassed gRPC, and how many used gRPC. The calls of
// streams are not counted.
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

// etcdConfig returns the configuration of the workloads' clients. Lost connections are made again
// within half a second, as in the SDK.
func etcdConfig(endpoints []string, options []grpc.DialOption) clientv3.Config {
	again := backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
		MaxDelay: 500 * time.Millisecond}
	return clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop(),
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second,
		DialOptions: append([]grpc.DialOption{grpc.WithNoProxy(), grpc.WithConnectParams(
			grpc.ConnectParams{Backoff: again, MinConnectTimeout: 2 * time.Second})}, options...)}
}
