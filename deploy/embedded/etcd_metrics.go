package embedded

import (
	"context"
	"fmt"
	"math"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tidemarkdb/tidemark/deploy/embedded/etcdmetrics"
)

// newEtcdMetrics makes the page of etcd's metrics, and what measures for it. It is called once,
// before the services of the etcd API are registered.
func (s *Server) newEtcdMetrics() http.Handler {
	process, more := prometheus.NewRegistry(), prometheus.NewRegistry()
	process.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.services.etcd.calls = etcdmetrics.NewCalls(more)
	s.etcdWatcher = etcdmetrics.NewWatcher(more)
	return promhttp.HandlerFor(&etcdmetrics.Page{Own: s.config.Registry, Process: process,
		More: more, State: s.etcdState}, promhttp.HandlerOpts{MaxRequestsInFlight: maxHTTPRequests})
}

// hexadecimal is an id as etcd's metrics and tools have it.
func hexadecimal(id uint64) string { return fmt.Sprintf("%x", id) }

// etcdState is etcdmetrics.Page.State.
func (s *Server) etcdState() (state etcdmetrics.State, is bool) {
	c, services := s.etcdCluster.Load(), s.etcdServices()
	if c == nil || services == nil || !c.filled() {
		return state, false
	}
	l, _ := c.store.Leadership()
	version, cluster, _ := services.Versions()
	allocated, err := c.store.DiskBytes()
	if err != nil {
		return state, false
	}
	used := c.store.Bytes()
	allocated = max(allocated, used)
	quota := uint64(max(0, s.config.CoreQuota))
	if quota == 0 {
		quota = allocated + min(c.core.databases.State.FreeBytes(), math.MaxInt64)
	}
	return etcdmetrics.State{HasLeader: l.Leader != 0, IsLeader: l.IsLeader,
		IsLearner: c.Learner(), ID: hexadecimal(c.MemberID()), Version: version,
		ClusterVersion: cluster, Committed: c.group.Committed(), Applied: c.store.AppliedIndex(),
		Peers: len(c.peers()), Revision: c.store.Revision(), Compacted: c.store.Compacted(),
		Used: used, Allocated: allocated, Quota: quota}, true
}

// etcdWatched is what etcdmetrics.Watcher looks at.
func (s *Server) etcdWatched(c *etcdCluster) etcdmetrics.Watched {
	return etcdmetrics.Watched{
		Leader: func() (uint64, <-chan struct{}) {
			l, changed := c.store.Leadership()
			return uint64(l.Leader), changed
		},
		Peers: c.peers,
		Ask: func(ctx context.Context, p etcdmetrics.Peer) error {
			conn, err := s.dialer.Conn(p.Address)
			if err != nil {
				return err
			}
			_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx,
				&grpc_health_v1.HealthCheckRequest{})
			return err
		},
	}
}

// peers are the other members, as of what is applied here.
func (c *etcdCluster) peers() (peers []etcdmetrics.Peer) {
	self := c.MemberID()
	for _, m := range c.store.Members().GetMembers() {
		if m.Server != self {
			peers = append(peers, etcdmetrics.Peer{ID: hexadecimal(m.Server), Address: m.Address})
		}
	}
	return peers
}
