package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	_ "unsafe" // for go:linkname

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

// coordinationService is the coordination service of a cluster. Each of its clients has a host of
// its own in the network, "etcd-1" and so on, and knows the members of the core, or if those change
// all servers.
func (s *shape) coordinationService(cluster *kvtest.Cluster) *driver.EtcdService {
	endpoints := cluster.Endpoints()
	if !s.members {
		endpoints = endpoints[:s.options.Cores]
	}
	return &driver.EtcdService{Endpoints: endpoints, Dialer: func(number int64) driver.DialEtcd {
		return cluster.Dialer(fmt.Sprintf("etcd-%d", number))
	}}
}

// neverDone is the channel on which etcd's client waits that is to be done never. It is made with
// the program, and a bubble takes no goroutine for idle that waits for a channel from outside: its
// time would stand still as long as anything is watched.
//
//go:linkname neverDone go.etcd.io/etcd/client/v3.valCtxCh
var neverDone chan struct{}

// bubbleEtcd makes etcd's client one for this bubble.
func bubbleEtcd() { neverDone = make(chan struct{}) }
