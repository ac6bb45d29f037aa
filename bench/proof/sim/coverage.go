package sim

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// coverage adds up the servers' counters over all of their processes: a run without elections, for
// example, has proved nothing about elections. It also compares the servers' gauges with their
// limits.
type coverage struct {
	mu         sync.Mutex
	registries []*prometheus.Registry
	// current are the registries of the servers' last processes.
	current map[int]*prometheus.Registry
	// kept has the counters of processes that were about to end. Some counters disappear when their
	// process ends.
	kept map[*prometheus.Registry]map[string]int
}

// registry returns the metrics registry of a new process of a server.
func (c *coverage) registry(server int) *prometheus.Registry {
	r := prometheus.NewRegistry()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.registries = append(c.registries, r)
	if c.current == nil {
		c.current = make(map[int]*prometheus.Registry)
	}
	c.current[server] = r
	return r
}

// covered maps the metrics that show what servers had to do to their names in the report.
var covered = map[string]string{
	"tidemark_host_elections_won_total":               "elections",
	"tidemark_host_snapshots_installed_total":         "snapshots installed",
	"tidemark_host_snapshots_failed_total":            "snapshots failed",
	"tidemark_host_dropped_proposals_total":           "proposals dropped",
	"tidemark_host_pauses_total":                      "pauses noticed",
	"tidemark_replica_duplicates_total":               "retries recognised",
	"tidemark_replica_rejected_entries_total":         "entries rejected",
	"tidemark_node_split_replicas_total":              "replicas born",
	"tidemark_node_replicas_merged_total":             "replicas merged",
	"tidemark_node_merges_given_up_total":             "merges given up",
	"tidemark_node_replicas_merged_by_snapshot_total": "replicas merged by snapshots",
	"tidemark_txn_commits_total":                      "commits",
	"tidemark_txn_aborts_total":                       "aborts",
	"tidemark_txn_pushes_total":                       "pushes",
	"tidemark_txn_conflicts_total":                    "conflicts",
	"tidemark_txn_read_restarts_total":                "reads moved",
	"tidemark_txn_lock_waits_total":                   "lock waits",
	"tidemark_txn_stale_lock_checks_total":            "sweeps",
}

// sum returns the sums of the counters. It is called when all processes have ended, or nearly so.
func (c *coverage) sum() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	sums := make(map[string]int)
	for _, r := range c.registries {
		told, kept := tell(r), c.kept[r]
		for _, name := range covered {
			sums[name] += max(told[name], kept[name])
		}
	}
	return sums
}

// keep records the counters of a server's process that is about to end.
func (c *coverage) keep(server int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil {
		c.kept = make(map[*prometheus.Registry]map[string]int)
	}
	if r := c.current[server]; r != nil {
		c.kept[r] = tell(r)
	}
}

// tell reads the counters of a process.
func tell(r *prometheus.Registry) map[string]int {
	families, err := r.Gather()
	if err != nil {
		return nil // the process is ending
	}
	sums := make(map[string]int)
	for _, f := range families {
		if name, ok := covered[f.GetName()]; ok {
			for _, m := range f.GetMetric() {
				sums[name] += int(m.GetCounter().GetValue())
			}
		}
	}
	return sums
}

// limit bounds a gauge. most is its highest value, multiplied by the number of the server's
// partitions if each is set. rest is its highest value when no client has asked for anything for a
// while; negative: not checked. emptied: the gauge is 0 when there is no keyspace.
type limit struct {
	most    float64
	each    bool
	rest    float64
	emptied bool
}

// limits has the gauges of all queues, waiting requests and held resources, with the defaults of
// the configuration that bounds them.
var limits = map[string]limit{
	"tidemark_replica_proposals_in_flight": {most: 2, each: true, rest: 0},
	"tidemark_replica_queued_writes":       {most: 4096, each: true, rest: 0},
	"tidemark_replica_pending_writes":      {most: 2 * 100_000, each: true, rest: 0},
	"tidemark_rpc_sending_snapshots":       {most: 4, rest: 0},
	"tidemark_rpc_receiving_snapshots":     {most: 4, rest: 0},
	"tidemark_rpc_client_streams":          {most: 1024, rest: -1},
	"tidemark_placement_table_streams":     {most: 1024, rest: -1},
	"tidemark_placement_store_watchers":    {most: 10_000, rest: -1},
	"tidemark_placement_store_leases":      {most: 1000, rest: -1},
	lockGauge:                              {most: 1_000_000, rest: 0, emptied: true},
	"tidemark_node_gc_pending_partitions":  {most: 1, each: true, rest: -1, emptied: true},
	"tidemark_host_groups":                 {most: 10_000, rest: -1, emptied: true},
	"tidemark_host_awake_groups":           {most: 10_000, rest: -1, emptied: true},
	"tidemark_host_peers":                  {most: 16, rest: -1, emptied: true},
}

// checkGauges compares the gauges with their limits.
func (c *coverage) checkGauges(w *World) {
	c.gauges(w, func(server int, name string, l limit, value, most float64) {
		if value > most || value < 0 {
			w.Violation("%s of server %d is %v; its limit is %v", name, server, value, most)
		}
	})
}

// checkRest compares the gauges with their values at rest. Work that servers do by themselves, such
// as garbage collection, may just be under way. So only a gauge that stays above its value at rest
// is a violation.
func (c *coverage) checkRest(w *World) {
	const tries, pause = 50, 73 * time.Millisecond
	busy := func(complain func(server int, name string, value float64)) (any bool) {
		c.gauges(w, func(server int, name string, l limit, value, _ float64) {
			if l.rest >= 0 && value > l.rest {
				any = true
				complain(server, name, value)
			}
		})
		return any
	}
	for range tries {
		if !busy(func(int, string, float64) {}) {
			return
		}
		time.Sleep(pause)
	}
	busy(func(server int, name string, value float64) {
		w.Violation("%s of server %d is %v although nothing is under way", name, server, value)
	})
}

// lockGauge counts the locks of transactions. lockPatience is how long locks may stay after the
// last client has ended: three seconds until the client is believed dead, two seconds until the
// next sweep, and the time of the sweep.
const (
	lockGauge    = "tidemark_txn_locks"
	lockPatience = 6 * time.Second
)

// checkLocks checks that transactions which are over, or whose clients are gone, have left no
// locks.
func (c *coverage) checkLocks(w *World) {
	left := func() (servers map[int]float64) {
		c.gauges(w, func(server int, name string, _ limit, value, _ float64) {
			if name == lockGauge && value != 0 {
				if servers == nil {
					servers = make(map[int]float64)
				}
				servers[server] = value
			}
		})
		return servers
	}
	for began := time.Now(); left() != nil; time.Sleep(100 * time.Millisecond) {
		if time.Since(began) > lockPatience {
			w.Violation("%v after the last client's end transactions have keys locked, by "+
				"server: %v", lockPatience, left())
			return
		}
	}
}

// ofCore says whether a metric belongs to the core's group, and not to the data node.
func ofCore(m *dto.Metric) bool {
	return slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool {
		return l.GetName() == "part" && l.GetValue() == "core"
	})
}

func (c *coverage) gauges(w *World, visit func(server int, name string, l limit, value,
	most float64)) {
	for server := range w.Cluster.Servers() {
		p := w.Cluster.Process(server)
		if p == nil {
			continue
		}
		c.mu.Lock()
		r := c.current[server]
		c.mu.Unlock()
		families, err := r.Gather()
		if err != nil {
			continue // the server is starting or ending
		}
		partitions := float64(len(p.Replicas()))
		if ready, _ := p.Ready(); !ready {
			partitions = math.Inf(1) // replicas are being opened: Replicas does not list all of them
		}
		for _, f := range families {
			l, ok := limits[f.GetName()]
			if !ok {
				continue
			}
			most, value := l.most, 0.0
			if l.each {
				most *= partitions
			}
			for _, m := range f.GetMetric() {
				if !ofCore(m) {
					value += m.GetGauge().GetValue()
				}
			}
			visit(server, f.GetName(), l, value, most)
		}
	}
}
