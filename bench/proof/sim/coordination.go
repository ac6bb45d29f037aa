package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	_ "unsafe" // for go:linkname

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/tidemarkdb/tidemark/bench/proof/coordination"
	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// mixCoordination has all seeds but those about epochs use the coordination service, besides.
func (s *shape) mixCoordination(random *rand.Rand) {
	if s.epochs {
		return
	}
	s.coordination = true
	possible := slices.DeleteFunc(coordination.Standard(), func(w driver.Workload) bool {
		// The fence of locks is transactions.
		return s.wild && !s.transactions && w.Name() == "etcd-locks"
	})
	s.extras = append(s.extras, possible[random.IntN(len(possible))])
}

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

// neverDone is the channel on which etcd's client waits that is to be done never. It is made with
// the program, and a bubble takes no goroutine for idle that waits for a channel from outside: its
// time would stand still as long as anything is watched.
//
//go:linkname neverDone go.etcd.io/etcd/client/v3.valCtxCh
var neverDone chan struct{}

// bubbleEtcd makes etcd's client one for this bubble.
func bubbleEtcd() { neverDone = make(chan struct{}) }
