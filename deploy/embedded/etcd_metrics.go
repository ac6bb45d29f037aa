package embedded

import (
	"math"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tidemarkdb/tidemark/deploy/embedded/etcdmetrics"
)

// newMetrics makes the page with etcd's metrics, the counters of calls, and the watcher of the
// other members. It is called once, before the services are registered.
func (a *etcdAPI) newMetrics() http.Handler {
	process, more := prometheus.NewRegistry(), prometheus.NewRegistry()
	process.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	a.Calls = etcdmetrics.NewCalls(more)
	a.watcher = etcdmetrics.NewWatcher(more)
	return promhttp.HandlerFor(&etcdmetrics.Page{Own: a.config.Registry, Process: process,
		More: more, State: a.metricsState}, promhttp.HandlerOpts{MaxRequestsInFlight: maxHTTPRequests})
}

// metricsState is the function for etcdmetrics.Page.State.
func (a *etcdAPI) metricsState() (state etcdmetrics.State, is bool) {
	c, services := a.cluster.Load(), a.member.etcdServices()
	p := a.member.part.Load()
	if p == nil || c == nil || services == nil || !c.Filled() {
		return state, false
	}
	l, _ := c.Store.Leadership()
	version, cluster, _ := services.Versions()
	allocated, err := c.Store.DiskBytes()
	if err != nil {
		return state, false
	}
	used := c.Store.Bytes()
	allocated = max(allocated, used)
	quota := uint64(max(0, a.config.CoreQuota))
	if quota == 0 {
		quota = allocated + min(p.databases.State.FreeBytes(), math.MaxInt64)
	}
	return etcdmetrics.State{HasLeader: l.Leader != 0, IsLeader: l.IsLeader,
		IsLearner: c.Learner(), ID: etcdmetrics.ID(c.MemberID()), Version: version,
		ClusterVersion: cluster, Committed: c.Group.Committed(), Applied: c.Store.AppliedIndex(),
		Peers: len(c.Peers()), Revision: c.Store.Revision(), Compacted: c.Store.Compacted(),
		Used: used, Allocated: allocated, Quota: quota}, true
}
