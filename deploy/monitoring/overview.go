package monitoring

const onCoreLeader = `
and on (job, instance, server) tidemark_placement_store_leader{store!="coordination"} == 1`

var overview = Dashboard{
	Name: "overview", Title: "Tidemark / Overview",
	Description: "Is the cluster well, and what does it do?",
	Rows: []Row{
		{"Is all well? These have to be 0, but for the core's leader", []Panel{
			alarm("Servers down", "Servers that do not answer Prometheus.", `sum(up == bool 0)`),
			alarm("Nodes down", "Data nodes whose lease has run out, as the core sees it.",
				`sum(tidemark_placement_nodes - tidemark_placement_nodes_alive`+onCoreLeader+`)`),
			alarm("Core members down", "Members of the core of which its leader hears nothing.",
				`max(tidemark_core_members_silent)`),
			alarm("Nodes cut off", "How often a node that is alive does not hear another one.",
				`max(tidemark_placement_links_silent)`),
			alarm("Replicas behind", "Replicas that have not caught up with their leaders. Above 0 for a "+
				"while after a node was down.", `max(tidemark_placement_replicas_behind)`),
			alarm("Without leader", "Partitions that cannot be read or written, as the core sees it.",
				`sum(tidemark_placement_partitions - tidemark_placement_partitions_led`+onCoreLeader+`)`),
			alarm("Unhealthy nodes", "Nodes that serve nothing, because of their clock or disk.",
				`sum(tidemark_node_unhealthy)`),
			alarm("Disks full", "Stores below their reserve. They take no writes.",
				`sum(max by (job, instance, server) (tidemark_engine_full))`),
			alarm("Replicas failed", "Replicas that do not open, or have failed since their server "+
				"started.",
				`sum(tidemark_node_broken_replicas) + sum(tidemark_node_replicas_failed_total)`),
			alarm("Damaged files", "Damaged files that reads have met.",
				`sum(tidemark_engine_corruptions_total)`),
			{Title: "Core leaders", Description: "Has to be 1.", Unit: "short", Number: true,
				Queries: []Query{{`sum(tidemark_placement_store_leader{store!="coordination"})`, ""}}},
			{Title: "Leaders of the coordination store", Description: "Has to be 1.", Unit: "short",
				Number: true, Queries: []Query{
					{`sum(tidemark_placement_store_leader{store="coordination"})`, ""}}},
			number("Nodes", "short", `max(tidemark_placement_nodes)`),
			number("Keyspaces", "short", `max(tidemark_placement_keyspaces)`),
			number("Partitions", "short", `max(tidemark_placement_partitions)`),
			{Title: "Versions", Description: "More than one line: servers of several versions.",
				Unit: "short", Number: true,
				Queries: []Query{{`count by (version) (tidemark_build_info)`, "{{version}}"}}},
			{Title: "Alerts", Description: "Alerts of the cluster that fire.", Unit: "short", Width: 24,
				Queries: []Query{{`count by (alertname, severity) (ALERTS{alertstate="firing"})`,
					"{{alertname}} ({{severity}})"}}, Empty: "no alert fires"},
		}},
		{"Requests", []Panel{
			rate("Requests", "reqps", "Requests of clients that reach each server.",
				"tidemark_rpc_requests_total"),
			slowest("Reads, p99", "On the server, without the network. One request in 64 is timed.",
				"tidemark_rpc_request_seconds", `{kind="read"}`),
			slowest("Writes, p99", "On the server, without the way to the client.",
				"tidemark_rpc_request_seconds", `{kind="write"}`),
			slowest("Steps of transactions, p99", "Waits for locks included.",
				"tidemark_rpc_request_seconds", `{kind="transaction"}`),
			rateBy("command", "Commands answered", "reqps", "All outcomes.",
				"tidemark_replica_commands_total"),
			rateBy("outcome", "Commands that were not done", "reqps", "not_leader and stale_epoch come "+
				"with changes of leaders; clients send those again. The others have alerts.",
				`tidemark_replica_commands_total{outcome!="ok"}`),
			slowest("Log syncs, p99", "Every write waits for one, on a quorum of its replicas.",
				"tidemark_raftlog_sync_seconds", `{part="node"}`),
			slowest("Waits for locks, p99", "", "tidemark_txn_lock_wait_seconds", ""),
			level("Requests in the queue", "short", "Requests that wait to begin, because processors are "+
				"short. 0: the node can do what it is asked for.",
				"tidemark_node_admission_waiting_requests"),
			slowest("Waits to begin, p99", "Of the requests of normal priority that had to wait.",
				"tidemark_node_admission_wait_seconds", `{priority="normal"}`),
			rate("Slow requests", "reqps", "Requests that took at least as long as the server's "+
				"--slow-threshold. `tidemark slow` lists them.", "tidemark_node_slow_requests_total"),
			level("Queued writes", "short", "Writes that wait to be evaluated. High: overloaded.",
				"tidemark_replica_queued_writes"),
		}},
		{"Backups", []Panel{
			{Title: "Age of the newest complete backup", Unit: "s", Description: "What was written " +
				"since its moment is in no backup. Nothing is shown if the core knows no backup.",
				Queries: []Query{{
					`time() - max(tidemark_backup_last_complete_timestamp_seconds > 0)`, "age"}},
				Empty: "there is no backup yet"},
			{Title: "Backups and restores under way", Unit: "short", Description: "Being made, or " +
				"waiting for others.",
				Queries: []Query{{`max(tidemark_backup_unfinished)`, "under way or waiting"}}},
			{Title: "Since the last progress", Unit: "s", Description: "Of the backup or restore under " +
				"way: a part of it was finished, or another step began.",
				Queries: []Query{{
					`time() - max(tidemark_backup_progress_timestamp_seconds > 0)`, "without progress"}},
				Empty: "no backup is under way"},
			{Title: "Age of what schedules have", Unit: "s", Description: "What was written since then " +
				"would be lost with the cluster: since the last round of the log, and without a log since " +
				"the last backup.",
				Queries: []Query{
					{`time() - max by (schedule) (tidemark_backup_schedule_last_backup_timestamp_seconds)`,
						"backup of {{schedule}}"},
					{`time() - max by (schedule) (tidemark_backup_schedule_log_timestamp_seconds)`,
						"log of {{schedule}}"},
					{`time() - max by (schedule) (tidemark_backup_schedule_last_full_timestamp_seconds)`,
						"full backup of {{schedule}}"}},
				Empty: "there is no schedule"},
			{Title: "Rounds of logs that failed", Unit: "short", Description: "In the last hour. They are " +
				"written again.",
				Queries: []Query{{`sum by (schedule) (increase(tidemark_backup_log_failures_total[1h]))`,
					"{{schedule}}"}},
				Empty: "there is no schedule"},
			{Title: "Backups and restores that ended", Unit: "short", Description: "In the last hour, by " +
				"outcome. failed has an alert.",
				Queries: []Query{{`sum by (outcome) (increase(tidemark_backup_ended_total[1h]))`,
					"{{outcome}}"}}},
		}},
		{"Resources", []Panel{
			chart("Processor", "short", "Processors that are busy.",
				`sum by (instance) (rate(process_cpu_seconds_total[$__rate_interval]))`, "{{instance}}"),
			chart("Memory", "bytes", "Resident memory.",
				`sum by (instance) (process_resident_memory_bytes)`, "{{instance}}"),
			chart("Free disk space", "bytes", "0 is unknown.",
				`min by (instance, server) (tidemark_engine_free_bytes)`, perServer),
		}},
	},
}
