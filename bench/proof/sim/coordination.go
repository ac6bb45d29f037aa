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

// mixCoordination adds a workload of the coordination service to all seeds except seeds about
// epochs.
func (s *shape) mixCoordination(random *rand.Rand) {
	if s.epochs {
		return
	}
	s.coordination = true
	possible := slices.DeleteFunc(coordination.Standard(), func(w driver.Workload) bool {
		// The fence of locks is made of transactions.
		return s.wild && !s.transactions && w.Name() == "etcd-locks"
	})
	s.extras = append(s.extras, possible[random.IntN(len(possible))])
}

// coordinationService is the coordination service of a cluster. Each of its clients has its own
// host in the network, "etcd-1" and so on. A client knows the addresses of the core's members, or
// of all servers if the members change.
func (s *shape) coordinationService(cluster *kvtest.Cluster) *driver.EtcdService {
	endpoints := cluster.Endpoints()
	if !s.members {
		endpoints = endpoints[:s.options.Cores]
	}
	return &driver.EtcdService{Endpoints: endpoints, Dialer: func(number int64) driver.DialEtcd {
		return cluster.Dialer(fmt.Sprintf("etcd-%d", number))
	}}
}

// neverDone is a channel of etcd's client that is never closed: watches wait on it. The program
// makes it at its start. A bubble does not regard a goroutine as idle that waits on a channel from
// outside of the bubble, so virtual time would stand still while a watch is open.
//
//go:linkname neverDone go.etcd.io/etcd/client/v3.valCtxCh
var neverDone chan struct{}

// bubbleEtcd makes a new neverDone, so that etcd's client can be used in this bubble.
func bubbleEtcd() { neverDone = make(chan struct{}) }
