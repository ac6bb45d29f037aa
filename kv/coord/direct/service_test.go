package direct_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv/coord/direct"
	"github.com/tidemarkdb/tidemark/rpc/porttest"
)

// startCore starts a core of so many members in this process, and returns their addresses when each
// is ready.
func startCore(tb testing.TB, members int) (addresses []string, servers []*embedded.Server) {
	tb.Helper()
	for range members {
		addresses = append(addresses, porttest.Address(tb))
	}
	for _, address := range addresses {
		s, err := embedded.StartServer(tb.Context(), embedded.ServerConfig{Dir: tb.TempDir(),
			Listen: address, Core: addresses, Roles: []string{embedded.RoleCore},
			CacheBytes: 32 << 20, MemTableBytes: 8 << 20})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = s.Close(context.Background()) })
		servers = append(servers, s)
	}
	for _, s := range servers {
		if err := s.WaitReady(tb.Context()); err != nil {
			tb.Fatal(err)
		}
	}
	return addresses, servers
}

// open opens a client of etcd whose calls go past gRPC.
func open(tb testing.TB, c direct.Config, with clientv3.Config) (*clientv3.Client, *direct.Calls) {
	tb.Helper()
	calls := direct.New(c)
	with.Logger, with.DialOptions = zap.NewNop(), append(with.DialOptions, calls.DialOptions()...)
	client, err := clientv3.New(with)
	if err != nil {
		tb.Fatal(err)
	}
	calls.Begin(client.Endpoints)
	tb.Cleanup(func() {
		calls.Close()
		_ = client.Close()
	})
	return client, calls
}

// await makes calls until the condition holds.
func await(tb testing.TB, client *clientv3.Client, what string, holds func() bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 30*time.Second)
	defer cancel()
	for {
		_, err := client.Get(ctx, "none")
		if ctx.Err() != nil {
			tb.Fatalf("%s: not within 30 s: %v", what, err)
		}
		if holds() {
			return
		}
	}
}
