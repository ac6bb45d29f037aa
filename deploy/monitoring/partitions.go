package monitoring

var partitions = Dashboard{
	Name: "partitions", Title: "Tidemark / Partitions",
	Description: "Replicas, leaders, reads and writes, snapshots, garbage; and the core.",
	Rows: []Row{
		{"Replicas and leaders", []Panel{
			level("Leaders", "short", "Should be even.", `tidemark_node_leaders`),
			level("Replicas", "short", "", `tidemark_node_replicas`),
			level("Awake groups", "short", "Partitions that cost something at present.",
				`tidemark_host_awake_groups{part="node"}`),
			level("Without leader", "short", "Partitions here that have had no leader for 10 s.",
				`tidemark_node_leaderless_partitions`),
			{Title: "Closed timestamps", Unit: "s",
				Description: "How far behind the clock replicas can be read, at most, beyond the " +
					"closed lag.",
				Queries: []Query{
					{`max by (instance, server, leader) (tidemark_node_closed_ts_lag_seconds)`,
						perServer + " of node {{leader}}"},
				}},
			{Title: "Reads left to leaders", Unit: "ops", Queries: []Query{
				{`sum by (instance, server) ` +
					`(rate(tidemark_replica_follower_reads_redirected_total[$__rate_interval]))`, perServer},
			}},
			{Title: "Reads admitted for other replicas", Unit: "ops", Queries: []Query{
				{`sum by (instance, server) ` +
					`(rate(tidemark_replica_reads_admitted_total[$__rate_interval]))`, perServer},
			}},
			{Title: "Versions told to change feeds", Unit: "ops", Queries: []Query{
				{`sum by (instance, server) (rate(tidemark_replica_feed_changes_total[$__rate_interval]))`,
					perServer},
			}},
			slowest("Lag of change feeds", "How far behind the clock what a server tells is.",
				"tidemark_replica_feed_lag_seconds", ""),
			level("Misplaced leaders", "short", "Led here, and another node should.",
				`tidemark_node_misplaced_leaders`),
			{Title: "Changes of leaders", Unit: "ops", Queries: []Query{
				{`sum by (instance, server) (rate(tidemark_host_elections_won_total[$__rate_interval]))`,
					perServer + " elected"},
				{`sum by (instance, server) ` +
					`(rate(tidemark_node_leader_transfers_total[$__rate_interval]))`,
					perServer + " handed over"},
			}},
		}},
		{"Placement", []Panel{
			{Title: "Partitions that lack something", Unit: "short", Queries: []Query{
				{`max(tidemark_placement_partitions_unavailable)`, "unavailable"},
				{`max(tidemark_placement_partitions_under_replicated)`, "under replicated"},
				{`max(tidemark_placement_partitions_over_replicated)`, "over replicated"},
				{`max(tidemark_placement_partitions_misplaced)`, "misplaced"},
				{`max(tidemark_placement_leaders_misplaced)`, "leader misplaced"},
				{`max(tidemark_placement_partitions_blocked)`, "nothing can be done"},
			}},
			{Title: "Changes of replicas and leaders", Unit: "short", Queries: []Query{
				{`max(tidemark_placement_operators)`, "under way"},
				{`max(tidemark_placement_operators_waiting)`, "waiting"},
			}},
			{Title: "Bytes of the changes under way", Unit: "bytes", Queries: []Query{
				{`max(tidemark_placement_operator_bytes)`, "at most"},
			}},
			rateBy("kind", "Changes that ended", "ops", "",
				`tidemark_placement_operators_ended_total`),
			quantiles("Time of a change", "From its record to its end.",
				"tidemark_placement_operator_duration_seconds", ""),
			{Title: "Partitions that are too large or too busy", Unit: "short", Queries: []Query{
				{`max(tidemark_placement_partitions_to_split)`, "to be split"},
				{`max(tidemark_placement_partitions_indivisible)`, "no split helps"},
			}},
			{Title: "Partitions that are small and calm", Unit: "short", Queries: []Query{
				{`max(tidemark_placement_partitions_to_merge)`, "to be merged"},
			}},
			{Title: "The longest freeze", Unit: "s",
				Description: "A partition is frozen while its left neighbour consumes it, and " +
					"serves nothing.",
				Queries: []Query{
					{`max(tidemark_placement_frozen_partition_oldest_age_seconds)`, "age"},
				}},
			rateBy("reason", "Splits and merges begun by placement", "ops", "",
				`tidemark_placement_resizes_begun_total`),
			rate("Searches for the middle of a large partition", "ops", "",
				`tidemark_node_split_searches_total`),
			rate("Replicas made by splits", "ops", "", `tidemark_node_split_replicas_total`),
			rate("Replicas merged into others", "ops", "",
				`tidemark_node_replicas_merged_total`),
			rate("Attempts to merge that were given up", "ops", "",
				`tidemark_node_merges_given_up_total`),
			{Title: "Age of the oldest change", Unit: "s", Queries: []Query{
				{`max(tidemark_placement_operator_oldest_age_seconds)`, "age"},
			}},
		}},
		{"Reads and writes", []Panel{
			rateBy("command", "Commands done", "reqps", "", `tidemark_replica_commands_total`+
				`{outcome="ok"}`),
			rateBy("outcome", "Commands that were not done", "reqps", "",
				`tidemark_replica_commands_total{outcome!="ok"}`),
			rateBy("path", "Reads by what proves leadership", "reqps", "read_index costs a round of "+
				"heartbeats.", `tidemark_replica_reads_total`),
			{Title: "Writes under way", Unit: "short", Queries: []Query{
				{`sum(tidemark_replica_queued_writes)`, "queued"},
				{`sum(tidemark_replica_pending_writes)`, "evaluated"},
				{`sum(tidemark_replica_proposals_in_flight)`, "entries in flight"},
			}},
			rate("Writes evaluated again", "ops", "What they had found expired before they took effect.",
				`tidemark_replica_reevaluations_total`),
			mean("Writes in an entry", "short", "More share a round of Raft when there are many.",
				"tidemark_replica_entry_writes", ""),
			quantiles("Time of an apply", "Followers apply much at a time.",
				"tidemark_replica_apply_seconds", ""),
			rate("Entries applied", "ops", "", `tidemark_replica_applied_entries_total`),
			level("Groups", "short", "Raft groups, the core's among them.", `tidemark_host_groups`),
			level("Broken replicas", "short", "Replicas on disk that do not open.",
				`tidemark_node_broken_replicas`),
		}},
		{"Snapshots and garbage", []Panel{
			{Title: "Snapshots", Description: "Replicas that could not follow by the log.", Unit: "ops",
				Queries: []Query{
					{`sum(rate(tidemark_host_snapshots_sent_total[$__rate_interval]))`, "sent"},
					{`sum(rate(tidemark_host_snapshots_installed_total[$__rate_interval]))`, "installed"},
					{`sum(rate(tidemark_rpc_failed_snapshots_total[$__rate_interval]))`, "failed"},
				}},
			rate("Snapshot bytes sent", "Bps", "", `tidemark_rpc_sent_snapshot_bytes_total`),
			level("Waiting for garbage collection", "short", "Partitions that may have garbage.",
				`tidemark_node_gc_pending_partitions`),
			{Title: "Consumers of changes", Unit: "short", Queries: []Query{
				{`max(tidemark_core_consumers{state="kept"})`, "history is kept"},
				{`max(tidemark_core_consumers{state="too_old"})`, "too old"},
				{`sum(rate(tidemark_core_consumers_dropped_total[$__rate_interval]))`, "becoming too old"},
			}},
			{Title: "The last consumer of a keyspace's changes", Unit: "s",
				Description: "How far it is behind. What it has not taken is kept.", Queries: []Query{
					{`max by (keyspace) (tidemark_core_consumer_lag_seconds)`, "{{keyspace}}"},
				}},
			{Title: "Quotas of keyspaces", Unit: "percentunit",
				Description: "What is used of each. At 100 % requests are refused.", Queries: []Query{
					{`max by (keyspace, quota) (tidemark_core_keyspace_quota_used_ratio)`,
						"{{keyspace}} {{quota}}"},
				}},
			{Title: "Requests refused for quotas", Unit: "ops", Queries: []Query{
				{`sum by (quota) (rate(tidemark_node_quota_refused_total[$__rate_interval]))`, "{{quota}}"},
			}},
			{Title: "Garbage collections", Unit: "ops", Queries: []Query{
				{`sum(rate(tidemark_node_gc_runs_total[$__rate_interval]))`, "runs"},
				{`sum(rate(tidemark_node_gc_failures_total[$__rate_interval]))`, "failures"},
			}},
			rate("Versions removed", "ops", "", `tidemark_node_gc_versions_total`),
			rate("Expired keys removed", "ops", "Keys whose last value had expired, by leaders.",
				`tidemark_replica_gc_expired_keys_total`),
			rate("Stalled changes of replicas", "ops", "Creating or removing replicas waits for the "+
				"disk.", `tidemark_node_replica_changes_stalled_total`),
		}},
		{"Core", []Panel{
			{Title: "Table", Unit: "short", Queries: []Query{
				{`max(tidemark_placement_nodes)`, "nodes"},
				{`max(tidemark_placement_nodes_alive)`, "nodes alive"},
				{`max(tidemark_placement_partitions)`, "partitions"},
				{`max(tidemark_placement_partitions_led)`, "partitions led"},
			}},
			{Title: "Members of the core", Unit: "short", Queries: []Query{
				{`max(tidemark_core_members)`, "members"},
				{`max(tidemark_core_voters)`, "voters"},
				{`max(tidemark_core_members_silent)`, "silent"},
				{`max(tidemark_core_learners)`, "learners"},
				{`max(tidemark_core_membership_changes)`, "changes under way"},
				{`max(tidemark_core_members_version_unknown)`, "of unknown version"},
			}},
			{Title: "Age of the change of the core's members", Unit: "s", Queries: []Query{
				{`max(tidemark_core_membership_change_age_seconds)`, "change"},
				{`max(tidemark_core_membership_change_step_age_seconds)`, "its present step"},
			}},
			{Title: "Size of the core's stores", Description: "Keys and values of the whole history, and " +
				"leases. Above the quota nothing is put; without one it is 0.", Unit: "bytes",
				Queries: []Query{
					{`max by (store) (tidemark_placement_store_bytes)`, "{{store}}"},
					{`max by (store) (tidemark_placement_store_quota_bytes) > 0`, "{{store}} quota"},
				}},
			{Title: "Commands of the core", Unit: "ops", Queries: []Query{
				{`sum by (store, kind, outcome) ` +
					`(rate(tidemark_placement_store_commands_total[$__rate_interval]))`,
					"{{store}} {{kind}} {{outcome}}"},
				{`sum by (store) ` +
					`(rate(tidemark_placement_store_overloaded_total[$__rate_interval]))`,
					"{{store}} overloaded"},
				{`sum by (store) ` +
					`(rate(tidemark_placement_store_leases_expired_total[$__rate_interval]))`,
					"{{store}} leases expired"},
			}},
			with("the core is idle unless keyspaces or nodes change",
				quantiles("Time of the core's commands", "",
					"tidemark_placement_store_command_seconds", "")),
		}},
	},
}

// with is a panel that is empty while all is well, for a reason.
func with(reason string, p Panel) Panel {
	p.Empty = reason
	return p
}
