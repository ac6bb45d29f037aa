package prom

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tidemarkdb/tidemark/rpc/metric"
)

// Metrics that were renamed are exported under both names for one release, so that dashboards and
// alerts can be changed after the servers. The next release deletes this file, its test, and the
// calls of WithOldNames and RegistryWithOldNames.

// oldNames has, by the name of a renamed metric, the name that it had in the release before.
var oldNames = map[string]string{
	"tidemark_auth_cache_enabled":                            "tidemark_auth_follows",
	"tidemark_auth_cache_valid_seconds":                      "tidemark_auth_left_seconds",
	"tidemark_client_follower_read_outcomes_total":           "tidemark_client_replica_read_outcomes_total",
	"tidemark_client_follower_read_redirects_total":          "tidemark_client_replica_redirects_total",
	"tidemark_client_follower_reads_total":                   "tidemark_client_replica_reads_total",
	"tidemark_client_txn_backoff_seconds_total":              "tidemark_client_transaction_rest_seconds_total",
	"tidemark_client_txn_cleanup_pending_total":              "tidemark_client_transaction_ends_left_total",
	"tidemark_client_txn_commits_total":                      "tidemark_client_transaction_commits_total",
	"tidemark_client_txn_failures_total":                     "tidemark_client_transaction_failures_total",
	"tidemark_client_txn_pushed_total":                       "tidemark_client_transaction_pushed_total",
	"tidemark_client_txn_refreshes_total":                    "tidemark_client_transaction_refreshes_total",
	"tidemark_client_txn_restarts_total":                     "tidemark_client_transaction_restarts_total",
	"tidemark_client_txn_span_lock_attempts_total":           "tidemark_client_transaction_holds_total",
	"tidemark_core_consumer_retention_used_ratio":            "tidemark_core_consumer_keep_used_ratio",
	"tidemark_core_learners":                                 "tidemark_placement_core_learners",
	"tidemark_core_members":                                  "tidemark_placement_core_members",
	"tidemark_core_members_silent":                           "tidemark_placement_core_members_silent",
	"tidemark_core_members_version_unknown":                  "tidemark_placement_members_unheard",
	"tidemark_core_membership_change_age_seconds":            "tidemark_placement_core_change_age_seconds",
	"tidemark_core_membership_change_step_age_seconds":       "tidemark_placement_core_change_step_age_seconds",
	"tidemark_core_membership_changes":                       "tidemark_placement_core_changes",
	"tidemark_core_voters":                                   "tidemark_placement_core_voters",
	"tidemark_engine_wal_input_bytes_total":                  "tidemark_engine_wal_bytes_in_total",
	"tidemark_engine_wal_written_bytes_total":                "tidemark_engine_wal_bytes_written_total",
	"tidemark_node_closed_ts_lag_seconds":                    "tidemark_node_closed_lag_seconds",
	"tidemark_node_future_timestamp_requests_total":          "tidemark_node_requests_ahead_total",
	"tidemark_node_gc_pending_partitions":                    "tidemark_node_gc_waiting",
	"tidemark_node_partition_reports_total":                  "tidemark_node_reports_total",
	"tidemark_node_quiesced_closed_ts":                       "tidemark_node_asleep_closing",
	"tidemark_node_split_replicas_total":                     "tidemark_node_replicas_born_total",
	"tidemark_node_unhealthy":                                "tidemark_node_unfit",
	"tidemark_placement_frozen_partition_oldest_age_seconds": "tidemark_placement_frozen_oldest_age_seconds",
	"tidemark_placement_store_latest_version_reads_total":    "tidemark_placement_store_newest_reads_total",
	"tidemark_replica_feed_changes_total":                    "tidemark_replica_changes_total",
	"tidemark_replica_feed_lag_seconds":                      "tidemark_replica_changes_lag_seconds",
	"tidemark_replica_follower_reads_redirected_total":       "tidemark_replica_reads_not_closed_total",
	"tidemark_replica_reads_beyond_lease_total":              "tidemark_replica_reads_early_total",
	"tidemark_replica_reevaluations_total":                   "tidemark_replica_evaluated_again_total",
	"tidemark_replica_tombstones_scanned_total":              "tidemark_replica_vacant_keys_walked_total",
	"tidemark_replica_tombstones_skipped_total":              "tidemark_replica_vacant_keys_passed_total",
	"tidemark_rpc_connections_over_budget_total":             "tidemark_rpc_connections_overfull_total",
	"tidemark_rpc_method_calls_total":                        "tidemark_rpc_calls_total",
	"tidemark_rpc_throttle_seconds_total":                    "tidemark_rpc_host_pauses_seconds_total",
	"tidemark_rpc_unauthenticated_peers_refused_total":       "tidemark_rpc_strangers_refused_total",
	"tidemark_txn_commit_wait_reads_total":                   "tidemark_txn_reads_held_total",
	"tidemark_txn_requests_too_old_total":                    "tidemark_txn_refused_starts_total",
	"tidemark_txn_stale_lock_checks_total":                   "tidemark_txn_sweeps_total",
}

// OldNames yields the new and the old name of each metric that was renamed.
func OldNames() iter.Seq2[string, string] { return maps.All(oldNames) }

// oldHelp is the help text of a metric under its old name.
func oldHelp(name string) string {
	return "Deprecated, and not in the next release: the old name of " + name + "."
}

// WithOldNames gathers the metrics of g, and renamed ones under their old names as well, unless g
// itself has them. The families are sorted by name; both of a renamed metric share their values.
func WithOldNames(g prometheus.Gatherer) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := g.Gather()
		known := make(map[string]bool, len(families))
		for _, f := range families {
			known[f.GetName()] = true
		}
		for _, f := range families {
			if old := oldNames[f.GetName()]; old != "" && !known[old] {
				help := oldHelp(f.GetName())
				families = append(families, &dto.MetricFamily{Name: &old, Help: &help, Type: f.Type,
					Unit: f.Unit, Metric: f.Metric})
			}
		}
		slices.SortFunc(families, func(a, b *dto.MetricFamily) int {
			return strings.Compare(a.GetName(), b.GetName())
		})
		return families, err
	})
}

// RegistryWithOldNames is Registry, but registers renamed collectors under their old names as well.
// It is for programs whose registry WithOldNames does not gather.
func RegistryWithOldNames(r prometheus.Registerer) metric.Registry {
	if r == nil {
		return nil
	}
	return withOldNames{registry{r}}
}

type withOldNames struct{ metric.Registry }

// Register implements metric.Registry.
func (r withOldNames) Register(c metric.Collector) error {
	if err := r.Registry.Register(c); err != nil {
		return err
	}
	if oldNames[c.Describe().Name] == "" {
		return nil
	}
	err := r.Registry.Register(alias{c})
	if err != nil {
		r.Registry.Unregister(c)
	}
	return err
}

// Unregister implements metric.Registry.
func (r withOldNames) Unregister(c metric.Collector) {
	r.Registry.Unregister(c)
	if oldNames[c.Describe().Name] != "" {
		r.Registry.Unregister(alias{c})
	}
}

// alias is a collector under its old name.
type alias struct{ metric.Collector }

// Describe implements metric.Collector.
func (a alias) Describe() metric.Desc {
	d := a.Collector.Describe()
	d.Name, d.Help = oldNames[d.Name], oldHelp(d.Name)
	return d
}
