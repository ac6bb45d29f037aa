package monitoring

import "slices"

// Kind is the type of a metric.
type Kind string

// The kinds, as Prometheus' text format calls them.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram" // of NAME there are NAME_bucket, NAME_sum and NAME_count
)

// Metric is a metric that dashboards or rules use.
type Metric struct {
	Name string
	Kind Kind
	// Labels are those that servers give it. Prometheus adds those of targetLabels.
	Labels []string
	// Rare names the package that registers the metric, if a server exports it in some states only,
	// so that a cluster on which all is well does not have it.
	Rare string
}

// targetLabels are what tells servers apart: job and instance come from Prometheus, server from a
// process that runs several.
var targetLabels = []string{"job", "instance", "server"}

func metric(kind Kind, name string, labels ...string) Metric {
	return Metric{Name: name, Kind: kind, Labels: labels}
}

// Metrics are all that dashboards and rules use, by the package that registers them.
var Metrics = slices.Concat(processMetrics, engineMetrics, raftMetrics, nodeMetrics,
	replicaMetrics, transactionMetrics, rpcMetrics, placementMetrics, backupMetrics)

// Of deploy/embedded, and the Prometheus client's collectors. "up" is Prometheus' own.
var processMetrics = []Metric{
	metric(Gauge, "tidemark_build_info", "version", "goversion"),
	metric(Counter, "process_cpu_seconds_total"),
	metric(Gauge, "process_resident_memory_bytes"),
	metric(Counter, "tidemark_forward_calls_total", "outcome"),
	metric(Gauge, "tidemark_forward_open_calls"),
	metric(Gauge, "tidemark_memory_limit_bytes"),
	metric(Gauge, "tidemark_memory_part_bytes", "use"),
	metric(Gauge, "process_open_fds"),
	metric(Gauge, "process_max_fds"),
	metric(Gauge, "process_start_time_seconds"),
	{Name: "tidemark_tls_certificate_expiry_timestamp_seconds", Kind: Gauge,
		Rare: "deploy/embedded"},
	metric(Gauge, "go_goroutines"),
	metric(Gauge, "go_memstats_heap_inuse_bytes"),
}

// Of range/engine: for each of the two stores (engine: log, state) of each part (core, node).
var engineMetrics = []Metric{
	metric(Gauge, "tidemark_engine_free_bytes", "part", "engine"),
	metric(Gauge, "tidemark_engine_disk_bytes", "part", "engine"),
	metric(Gauge, "tidemark_engine_full", "part", "engine"),
	metric(Gauge, "tidemark_engine_failed", "part", "engine"),
	metric(Counter, "tidemark_engine_corruptions_total", "part", "engine"),
	metric(Counter, "tidemark_engine_compactions_failed_total", "part", "engine"),
	metric(Counter, "tidemark_engine_write_stalls_total", "part", "engine"),
	metric(Counter, "tidemark_engine_compacted_bytes_total", "part", "engine"),
	metric(Counter, "tidemark_engine_flushed_bytes_total", "part", "engine"),
	metric(Gauge, "tidemark_engine_compaction_debt_bytes", "part", "engine"),
	metric(Gauge, "tidemark_engine_l0_files", "part", "engine"),
	metric(Gauge, "tidemark_engine_read_amplification", "part", "engine"),
	metric(Gauge, "tidemark_engine_cache_bytes", "part", "engine"),
	metric(Gauge, "tidemark_engine_memtable_bytes", "part", "engine"),
}

// Of range/raftlog and range/host, for each part.
var raftMetrics = []Metric{
	metric(Histogram, "tidemark_raftlog_sync_seconds", "part"),
	metric(Histogram, "tidemark_raftlog_batch_appends", "part"),
	metric(Gauge, "tidemark_raftlog_pending_bytes", "part"),
	metric(Counter, "tidemark_raftlog_written_bytes_total", "part"),
	metric(Gauge, "tidemark_host_groups", "part"),
	metric(Gauge, "tidemark_host_awake_groups", "part"),
	metric(Counter, "tidemark_host_elections_won_total", "part"),
	metric(Counter, "tidemark_host_failed_groups_total", "part"),
	metric(Counter, "tidemark_host_inbox_full_total", "part"),
	metric(Counter, "tidemark_host_messages_refused_total", "part", "reason"),
	metric(Gauge, "tidemark_host_disk_slow", "part"),
	metric(Gauge, "tidemark_host_processor_wait_seconds", "part"),
	metric(Gauge, "tidemark_host_round_trip_seconds", "part"),
	metric(Counter, "tidemark_host_pauses_total", "part"),
	metric(Counter, "tidemark_host_peers_gone_total", "part"),
	metric(Counter, "tidemark_host_refused_appends_total", "part"),
	metric(Counter, "tidemark_host_snapshots_sent_total", "part"),
	metric(Counter, "tidemark_host_snapshots_failed_total", "part"),
	metric(Counter, "tidemark_host_snapshots_installed_total", "part"),
}

// Of range/node.
var nodeMetrics = []Metric{
	metric(Gauge, "tidemark_node_unhealthy", "part"),
	metric(Gauge, "tidemark_node_broken_replicas", "part"),
	metric(Counter, "tidemark_node_replicas_failed_total", "part"),
	metric(Gauge, "tidemark_node_leaderless_partitions", "part"),
	metric(Gauge, "tidemark_node_leaders", "part"),
	metric(Gauge, "tidemark_node_replicas", "part"),
	metric(Gauge, "tidemark_node_misplaced_leaders", "part"),
	metric(Counter, "tidemark_node_leader_transfers_total", "part"),
	metric(Gauge, "tidemark_node_clock_offset_seconds", "part"),
	metric(Gauge, "tidemark_node_clock_bound_seconds", "part"),
	metric(Counter, "tidemark_node_clock_jumps_total", "part"),
	metric(Counter, "tidemark_node_future_timestamp_requests_total", "part"),
	metric(Counter, "tidemark_node_heartbeats_total", "part"),
	metric(Counter, "tidemark_node_heartbeats_failed_total", "part"),
	metric(Counter, "tidemark_node_gc_runs_total", "part"),
	metric(Counter, "tidemark_node_split_searches_total", "part"),
	metric(Counter, "tidemark_node_split_replicas_total", "part"),
	metric(Counter, "tidemark_node_replicas_merged_total", "part"),
	metric(Counter, "tidemark_node_merges_given_up_total", "part"),
	metric(Counter, "tidemark_node_gc_failures_total", "part"),
	metric(Counter, "tidemark_node_quota_refused_total", "part", "quota"),
	metric(Counter, "tidemark_node_gc_versions_total", "part"),
	metric(Gauge, "tidemark_node_gc_pending_partitions", "part"),
	metric(Gauge, "tidemark_node_closed_ts_lag_seconds", "part", "leader"),
	metric(Counter, "tidemark_node_replica_changes_stalled_total", "part"),
	metric(Gauge, "tidemark_node_admission_waiting_requests", "part"),
	metric(Gauge, "tidemark_node_admission_limit_requests", "part"),
	metric(Gauge, "tidemark_node_admission_working_requests", "part"),
	metric(Histogram, "tidemark_node_admission_wait_seconds", "part", "priority"),
	metric(Counter, "tidemark_node_admission_refused_total", "part"),
	metric(Histogram, "tidemark_node_request_stage_seconds", "part", "stage"),
	metric(Counter, "tidemark_node_slow_requests_total", "part"),
}

// Of range/replica.
var replicaMetrics = []Metric{
	metric(Counter, "tidemark_replica_commands_total", "part", "command", "outcome"),
	metric(Counter, "tidemark_replica_reads_total", "part", "path"),
	metric(Counter, "tidemark_replica_reads_admitted_total", "part"),
	metric(Counter, "tidemark_replica_follower_reads_redirected_total", "part"),
	metric(Counter, "tidemark_replica_feed_changes_total", "part"),
	metric(Histogram, "tidemark_replica_feed_lag_seconds", "part"),
	metric(Counter, "tidemark_replica_gc_expired_keys_total", "part"),
	metric(Counter, "tidemark_replica_reevaluations_total", "part"),
	metric(Counter, "tidemark_replica_failures_total", "part"),
	metric(Gauge, "tidemark_replica_queued_writes", "part"),
	metric(Gauge, "tidemark_replica_pending_writes", "part"),
	metric(Gauge, "tidemark_replica_proposals_in_flight", "part"),
	metric(Histogram, "tidemark_replica_apply_seconds", "part"),
	metric(Histogram, "tidemark_replica_entry_writes", "part"),
	metric(Counter, "tidemark_replica_applied_entries_total", "part"),
}

// Of range/replica and range/replica/concurrency.
var transactionMetrics = []Metric{
	metric(Counter, "tidemark_txn_commits_total", "part", "phases"),
	metric(Counter, "tidemark_txn_conflicts_total", "part"),
	metric(Counter, "tidemark_txn_aborts_total", "part", "reason"),
	metric(Counter, "tidemark_txn_pushes_total", "part", "kind"),
	metric(Counter, "tidemark_txn_push_outcomes_total", "part", "outcome"),
	metric(Counter, "tidemark_txn_lock_waits_total", "part", "what"),
	metric(Histogram, "tidemark_txn_lock_wait_seconds", "part"),
	metric(Histogram, "tidemark_txn_commit_wait_seconds", "part"),
	metric(Gauge, "tidemark_txn_locks", "part"),
	metric(Gauge, "tidemark_txn_span_locks", "part"),
	metric(Counter, "tidemark_txn_span_locks_refused_total", "part"),
	metric(Counter, "tidemark_txn_locks_resolved_total", "part", "outcome"),
	metric(Counter, "tidemark_txn_read_restarts_total", "part", "why"),
	metric(Counter, "tidemark_txn_records_kept_total", "part"),
}

// Of rpc, and of deploy/embedded for rpc.
var rpcMetrics = []Metric{
	metric(Counter, "tidemark_rpc_requests_total"),
	metric(Histogram, "tidemark_rpc_request_seconds", "kind"),
	metric(Counter, "tidemark_rpc_requests_without_memory_total"),
	metric(Counter, "tidemark_rpc_unauthenticated_peers_refused_total"),
	metric(Counter, "tidemark_rpc_connections_displaced_total"),
	metric(Counter, "tidemark_rpc_streams_displaced_total"),
	metric(Counter, "tidemark_rpc_throttle_seconds_total"),
	metric(Counter, "tidemark_rpc_bad_replies_total"),
	metric(Gauge, "tidemark_rpc_client_streams"),
	metric(Counter, "tidemark_rpc_peer_sent_bytes_total", "part", "realm", "class"),
	metric(Counter, "tidemark_rpc_peer_sent_messages_total", "part", "realm", "class"),
	metric(Counter, "tidemark_rpc_peer_dropped_messages_total", "part", "realm", "class"),
	metric(Counter, "tidemark_rpc_failed_snapshots_total", "part", "realm"),
	metric(Counter, "tidemark_rpc_sent_snapshot_bytes_total", "part", "realm"),
}

// Of placement/server and placement/store: members of the core have them, and what says how many
// nodes are alive and which partitions are led holds on the member that leads.
var placementMetrics = []Metric{
	metric(Gauge, "tidemark_placement_store_leader", "part", "store"),
	metric(Gauge, "tidemark_placement_nodes", "part"),
	metric(Gauge, "tidemark_placement_nodes_alive", "part"),
	metric(Gauge, "tidemark_placement_keyspaces", "part"),
	metric(Gauge, "tidemark_placement_links_silent", "part"),
	metric(Gauge, "tidemark_placement_replicas_behind", "part"),
	metric(Gauge, "tidemark_placement_partitions", "part"),
	metric(Gauge, "tidemark_placement_partitions_led", "part"),
	metric(Gauge, "tidemark_placement_partitions_unavailable", "part"),
	metric(Gauge, "tidemark_placement_partitions_under_replicated", "part"),
	metric(Gauge, "tidemark_placement_partitions_over_replicated", "part"),
	metric(Gauge, "tidemark_placement_partitions_misplaced", "part"),
	metric(Gauge, "tidemark_placement_partitions_blocked", "part"),
	metric(Gauge, "tidemark_placement_partitions_to_split", "part"),
	metric(Gauge, "tidemark_placement_partitions_indivisible", "part"),
	metric(Gauge, "tidemark_placement_partitions_to_merge", "part"),
	metric(Gauge, "tidemark_placement_frozen_partition_oldest_age_seconds", "part"),
	metric(Counter, "tidemark_placement_resizes_begun_total", "part", "reason"),
	metric(Gauge, "tidemark_placement_leaders_misplaced", "part"),
	metric(Gauge, "tidemark_placement_operators", "part"),
	metric(Gauge, "tidemark_placement_operators_waiting", "part"),
	metric(Gauge, "tidemark_placement_operator_bytes", "part"),
	metric(Gauge, "tidemark_placement_operator_oldest_age_seconds", "part"),
	metric(Counter, "tidemark_placement_operators_ended_total", "part", "kind", "outcome"),
	metric(Histogram, "tidemark_placement_operator_duration_seconds", "part", "kind"),
	metric(Gauge, "tidemark_core_members_version_unknown", "part"),
	metric(Gauge, "tidemark_core_members", "part"),
	metric(Gauge, "tidemark_core_members_silent", "part"),
	metric(Gauge, "tidemark_core_voters", "part"),
	metric(Gauge, "tidemark_core_learners", "part"),
	metric(Gauge, "tidemark_core_membership_changes", "part"),
	metric(Gauge, "tidemark_core_membership_change_age_seconds", "part"),
	metric(Gauge, "tidemark_core_membership_change_step_age_seconds", "part"),
	metric(Gauge, "tidemark_upgrade_ready_timestamp_seconds", "part"),
	metric(Gauge, "tidemark_core_consumers", "part", "state"),
	metric(Counter, "tidemark_core_consumers_dropped_total", "part"),
	metric(Gauge, "tidemark_core_consumer_lag_seconds", "part", "keyspace"),
	metric(Gauge, "tidemark_core_consumer_retention_used_ratio", "part", "keyspace"),
	metric(Gauge, "tidemark_core_keyspace_quota_used_ratio", "part", "keyspace", "quota"),
	metric(Gauge, "tidemark_placement_store_bytes", "part", "store"),
	metric(Gauge, "tidemark_placement_store_quota_bytes", "part", "store"),
	metric(Histogram, "tidemark_placement_store_command_seconds", "part", "store"),
	metric(Counter, "tidemark_placement_store_commands_total", "part", "store", "kind", "outcome"),
	metric(Counter, "tidemark_placement_store_overloaded_total", "part", "store"),
	metric(Counter, "tidemark_placement_store_leases_expired_total", "part", "store"),
}

// Of placement/server/backups.
var backupMetrics = []Metric{
	metric(Gauge, "tidemark_backup_last_complete_timestamp_seconds", "part"),
	metric(Gauge, "tidemark_backup_unfinished", "part"),
	metric(Gauge, "tidemark_backup_progress_timestamp_seconds", "part"),
	metric(Counter, "tidemark_backup_ended_total", "part", "outcome"),
	metric(Gauge, "tidemark_backup_schedule_last_backup_timestamp_seconds", "part", "schedule"),
	metric(Gauge, "tidemark_backup_schedule_last_full_timestamp_seconds", "part", "schedule"),
	metric(Gauge, "tidemark_backup_schedule_log_timestamp_seconds", "part", "schedule"),
	metric(Gauge, "tidemark_backup_schedule_interval_seconds", "part", "schedule"),
	metric(Gauge, "tidemark_backup_schedule_broken", "part", "schedule"),
	metric(Counter, "tidemark_backup_log_failures_total", "part", "schedule"),
	metric(Counter, "tidemark_backup_log_gaps_total", "part", "schedule"),
}
