package etcdmetrics

import (
	"cmp"
	"errors"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// State is the state of a member's part of the store.
type State struct {
	HasLeader, IsLeader, IsLearner bool
	// ID is the member's id, in hexadecimal. Version and ClusterVersion are the versions of etcd that
	// clients see.
	ID, Version, ClusterVersion string
	// Committed and Applied are indexes in the log.
	Committed, Applied uint64
	// Peers is the number of other members.
	Peers int
	// Revision is the newest revision of the keys. Compacted is the compacted revision.
	Revision, Compacted uint64
	// Used is the size that counts for the quota. Allocated is the size of the store on disk. Both are
	// in bytes.
	Used, Allocated uint64
	// Quota is the size above which puts are refused, in bytes. Without a quota it is the size for
	// which the disk has space, because etcd's alerts compare the other sizes with it.
	Quota uint64
}

// Page gathers the metrics. It implements prometheus.Gatherer.
type Page struct {
	// Own has the server's own metrics. Process has the metrics of the process. More has further
	// metrics with etcd's names.
	Own, Process, More prometheus.Gatherer
	// State returns the state of this server's part of the store. It returns false if there is none.
	State func() (State, bool)
}

var _ prometheus.Gatherer = (*Page)(nil)

// renamed maps own metrics to etcd's names. The value is the sum of all series with these labels.
var renamed = []struct {
	own    string
	labels map[string]string
	as     string
	help   string
}{
	{"tidemark_raftlog_sync_seconds", core, "etcd_disk_wal_fsync_duration_seconds",
		"Time to write and sync the log."},
	{"tidemark_raftlog_written_bytes_total", core, "etcd_disk_wal_write_bytes_total",
		"Bytes written to the log."},
	{applies, core, "etcd_disk_backend_commit_duration_seconds",
		"Time to apply what was committed together."},
	{"tidemark_host_dropped_proposals_total", core, "etcd_server_proposals_failed_total",
		"Proposals that failed, because their leader was none any more."},
	{"tidemark_placement_store_pending_commands", coordination, "etcd_server_proposals_pending",
		"Proposals whose outcome is open."},
	{"tidemark_rpc_peer_sent_bytes_total", core, "etcd_network_peer_sent_bytes_total",
		"Bytes of messages sent to other members."},
	{"tidemark_rpc_peer_received_bytes_total", core, "etcd_network_peer_received_bytes_total",
		"Bytes of messages received from other members."},
	{"tidemark_rpc_peer_dropped_messages_total", core, "etcd_network_peer_sent_failures_total",
		"Messages to other members that were dropped."},
	{"tidemark_rpc_peer_dropped_messages_total",
		map[string]string{"part": "core", "class": "control"},
		"etcd_server_heartbeat_send_failures_total",
		"Heartbeats to other members, and other small messages, that were dropped."},
	{"tidemark_rpc_client_received_bytes_total", nil, "etcd_network_client_grpc_received_bytes_total",
		"Bytes received from gRPC clients."},
	{"tidemark_rpc_client_sent_bytes_total", nil, "etcd_network_client_grpc_sent_bytes_total",
		"Bytes sent to gRPC clients."},
	{"tidemark_placement_store_watchers", coordination, "etcd_debugging_mvcc_watcher_total",
		"Watchers."},
	{"tidemark_placement_store_watchers_lagging", coordination,
		"etcd_debugging_mvcc_slow_watcher_total", "Watchers that get events from the history."},
	{"tidemark_placement_store_watch_streams", coordination, "etcd_debugging_mvcc_watch_stream_total",
		"Streams of watchers."},
	{"tidemark_placement_store_leases_expired_total", coordination,
		"etcd_debugging_server_lease_expired_total", "Leases that ran out while this member led."},
}

const (
	applies = "tidemark_host_apply_seconds"
	// slowApply is the duration in seconds above which etcd calls an application slow. The next larger
	// bound of the histogram is 0.16384.
	slowApply = 0.1
)

var (
	core         = map[string]string{"part": "core"}
	coordination = map[string]string{"part": "core", "store": "coordination"}
)

// Gather implements prometheus.Gatherer.
func (p *Page) Gather() ([]*dto.MetricFamily, error) {
	own, err := p.Own.Gather()
	more, failed := prometheus.Gatherers{p.Process, p.More}.Gather()
	err = errors.Join(err, failed)
	state, is := p.State()
	for _, r := range renamed {
		if r.labels != nil && !is {
			continue
		}
		i := slices.IndexFunc(own, func(f *dto.MetricFamily) bool { return f.GetName() == r.own })
		if i < 0 {
			continue
		}
		if r.own == applies && is {
			more = append(more, slowApplies(own[i]))
		}
		if sum := sumOf(own[i], r.labels); sum != nil {
			more = append(more, family(r.as, r.help, own[i].GetType(), sum))
		}
	}
	if is {
		more = append(more, state.families()...)
	}
	slices.SortFunc(more, func(a, b *dto.MetricFamily) int {
		return cmp.Compare(a.GetName(), b.GetName())
	})
	return more, err
}

// slowApplies returns the number of applications that took longer than slowApply.
func slowApplies(f *dto.MetricFamily) *dto.MetricFamily {
	slow := 0.0
	if m := sumOf(f, core); m != nil && m.Histogram != nil {
		slow = float64(m.Histogram.GetSampleCount())
		for _, b := range m.Histogram.Bucket {
			if b.GetUpperBound() >= slowApply {
				slow -= float64(b.GetCumulativeCount())
				break
			}
		}
	}
	return family("etcd_server_slow_apply_total", "Applications that took longer than 0.16 s.",
		dto.MetricType_COUNTER, &dto.Metric{Counter: &dto.Counter{Value: &slow}})
}

func family(name, help string, kind dto.MetricType, m *dto.Metric) *dto.MetricFamily {
	return &dto.MetricFamily{Name: &name, Help: &help, Type: &kind, Metric: []*dto.Metric{m}}
}

// sumOf adds up the series of a family that have the labels. It returns nil if there is none.
func sumOf(f *dto.MetricFamily, labels map[string]string) *dto.Metric {
	var sum *dto.Metric
	for _, m := range f.Metric {
		if !has(m, labels) {
			continue
		}
		switch {
		case sum == nil:
			sum = &dto.Metric{Counter: m.Counter, Gauge: m.Gauge, Histogram: m.Histogram}
		case m.Counter != nil:
			value := sum.Counter.GetValue() + m.Counter.GetValue()
			sum.Counter = &dto.Counter{Value: &value}
		case m.Gauge != nil:
			value := sum.Gauge.GetValue() + m.Gauge.GetValue()
			sum.Gauge = &dto.Gauge{Value: &value}
		}
	}
	return sum
}

func has(m *dto.Metric, labels map[string]string) bool {
	found := 0
	for _, l := range m.Label {
		if labels[l.GetName()] == l.GetValue() {
			found++
		}
	}
	return found == len(labels)
}

// families returns the metrics of the state.
func (s *State) families() (all []*dto.MetricFamily) {
	add := func(name, help string, value float64, label, of string) {
		m := &dto.Metric{Gauge: &dto.Gauge{Value: &value}}
		if label != "" {
			m.Label = []*dto.LabelPair{{Name: &label, Value: &of}}
		}
		all = append(all, family("etcd_"+name, help, dto.MetricType_GAUGE, m))
	}
	gauge := func(name, help string, value float64) {
		add(name, help, value, "", "")
	}
	boolean := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	gauge("server_has_leader", "1 if there is a leader.", boolean(s.HasLeader))
	gauge("server_is_leader", "1 if this member leads.", boolean(s.IsLeader))
	gauge("server_is_learner", "1 if this member has no vote.", boolean(s.IsLearner))
	add("server_id", "1 for the id of this member.", 1, "server_id", s.ID)
	add("server_version", "1 for the version of etcd that clients are told.", 1,
		"server_version", s.Version)
	add("cluster_version", "1 for the version that all members have.", 1,
		"cluster_version", s.ClusterVersion)
	gauge("server_proposals_committed_total", "Index up to which the log is committed.",
		float64(s.Committed))
	gauge("server_proposals_applied_total", "Index up to which the log is applied.",
		float64(s.Applied))
	gauge("server_quota_backend_bytes", "Size above which nothing is put: the quota, or what the disk has.",
		float64(s.Quota))
	gauge("network_known_peers", "How many other members there are.", float64(s.Peers))
	gauge("mvcc_db_total_size_in_bytes", "Bytes that the store takes.", float64(s.Allocated))
	gauge("mvcc_db_total_size_in_use_in_bytes", "Bytes that count for the quota.", float64(s.Used))
	gauge("debugging_mvcc_current_revision", "Newest revision.", float64(s.Revision))
	gauge("debugging_mvcc_compact_revision", "Lowest revision that can be read.",
		float64(s.Compacted))
	return all
}
