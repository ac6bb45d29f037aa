package sim

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// openEtcd connects clients of the coordination service. Each has a host of its own in the network,
// "etcd-1" and so on, and knows the members of the core, or if those change all servers.
func (s *shape) openEtcd(cluster *kvtest.Cluster) func(context.Context) (*clientv3.Client, error) {
	endpoints := cluster.Endpoints()
	if !s.members {
		endpoints = endpoints[:s.options.Cores]
	}
	var clients atomic.Int64
	return func(context.Context) (*clientv3.Client, error) {
		dial := cluster.Dialer(fmt.Sprintf("etcd-%d", clients.Add(1)))
		return clientv3.New(driver.EtcdConfig(endpoints,
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				return dial(ctx, address)
			})))
	}
}
