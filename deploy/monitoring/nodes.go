package monitoring

var nodes = Dashboard{
	Name: "node", Title: "Tidemark / Node", ByInstance: true,
	Description: "Single servers: process, disks, clocks, network.",
	Rows: []Row{
		{"Process", []Panel{
			chart("Processor", "short", "Processors that are busy.",
				`rate(process_cpu_seconds_total[$__rate_interval])`, "{{instance}}"),
			{Title: "Memory", Unit: "bytes", Queries: []Query{
				{`process_resident_memory_bytes`, "{{instance}} resident"},
				{`go_memstats_heap_inuse_bytes`, "{{instance}} heap"},
				{`sum by (instance) (tidemark_memory_limit_bytes)`, "{{instance}} limit"},
			}},
			{Title: "Memory of the stores", Unit: "bytes", Queries: []Query{
				{`sum by (instance, server) (tidemark_engine_cache_bytes)`, perServer + " cache"},
				{`sum by (instance, server) (tidemark_engine_memtable_bytes)`, perServer + " memtables"},
			}},
			chart("Goroutines", "short", "", `go_goroutines`, "{{instance}}"),
			chart("Open files", "percentunit", "Part of what the process may open.",
				`process_open_fds / process_max_fds`, "{{instance}}"),
			chart("Up since", "s", "Age of the process.", `time() - process_start_time_seconds`,
				"{{instance}}"),
		}},
		{"Disks", []Panel{
			chart("Free space", "bytes", "0 is unknown.",
				`min by (instance, server, part) (tidemark_engine_free_bytes)`, perServer+" {{part}}"),
			chart("Used space", "bytes", "", `sum by (instance, server, part, engine) `+
				`(tidemark_engine_disk_bytes)`, perServer+" {{part}}/{{engine}}"),
			slowest("Log syncs, p99", "Every write waits for one.", "tidemark_raftlog_sync_seconds",
				`{part="node"}`),
			mean("Appends in a sync", "short", "How many partitions share a sync: higher is cheaper.",
				"tidemark_raftlog_batch_appends", `{part="node"}`),
			rate("Written to the log", "Bps", "", `tidemark_raftlog_written_bytes_total`),
			level("Waiting for the log", "bytes", "Above 256 MiB writes are refused.",
				`tidemark_raftlog_pending_bytes`),
			{Title: "Flushes and compactions", Unit: "Bps", Queries: []Query{
				{`sum by (instance, server) ` +
					`(rate(tidemark_engine_flushed_bytes_total[$__rate_interval]))`,
					perServer + " flushed"},
				{`sum by (instance, server) ` +
					`(rate(tidemark_engine_compacted_bytes_total[$__rate_interval]))`,
					perServer + " compacted"},
			}},
			level("Compaction debt", "bytes", "Grows without end: more is written than the disk can "+
				"tidy up.", `tidemark_engine_compaction_debt_bytes`),
			{Title: "Shape of the state store", Unit: "short", Queries: []Query{
				{`tidemark_engine_l0_files{engine="state",part="node"}`, perServer + " L0 files"},
				{`tidemark_engine_read_amplification{engine="state",part="node"}`,
					perServer + " read amplification"},
			}},
			rate("Write stalls", "ops", "Writes that waited for flushes or compactions.",
				`tidemark_engine_write_stalls_total`),
			rate("Failed compactions", "ops", "", `tidemark_engine_compactions_failed_total`),
			rate("Appends refused for lack of room", "ops", "",
				`tidemark_host_refused_appends_total`),
		}},
		{"Clocks", []Panel{
			level("Offset of the farthest peer", "s", "At 250 ms servers stop serving.",
				`tidemark_node_clock_offset_seconds`),
			level("Clock bound", "s", "Commit wait takes about as long.",
				`tidemark_node_clock_bound_seconds`),
			{Title: "Jumps and pauses", Description: "Since the process started.", Unit: "short",
				Queries: []Query{
					{`sum by (instance, server) (tidemark_node_clock_jumps_total)`, perServer + " jumps"},
					{`sum by (instance, server) (tidemark_host_pauses_total)`, perServer + " pauses"},
					{`sum by (instance, server) (tidemark_node_future_timestamp_requests_total)`,
						perServer + " requests ahead"},
				}},
		}},
		{"Network", []Panel{
			rate("Raft bytes sent", "Bps", "", `tidemark_rpc_peer_sent_bytes_total`),
			rate("Raft messages sent", "ops", "", `tidemark_rpc_peer_sent_messages_total`),
			{Title: "Raft messages lost", Unit: "ops", Description: "A peer is down, or this server " +
				"is overloaded.", Queries: []Query{
				{`sum by (instance, server) ` +
					`(rate(tidemark_rpc_peer_dropped_messages_total[$__rate_interval]))`,
					perServer + " dropped"},
				{`sum by (instance, server) (rate(tidemark_host_inbox_full_total[$__rate_interval]))`,
					perServer + " inbox full"},
				{`sum by (instance, server) ` +
					`(rate(tidemark_host_messages_refused_total[$__rate_interval]))`,
					perServer + " refused"},
			}},
			{Title: "Requests", Description: "On the server, without the network. One in 64 is timed.",
				Unit: "s", Queries: []Query{
					{`histogram_quantile(0.5, sum by (instance, server, kind, le) ` +
						`(rate(tidemark_rpc_request_seconds_bucket[$__rate_interval])))`,
						perServer + " {{kind}} p50"},
					{`histogram_quantile(0.99, sum by (instance, server, kind, le) ` +
						`(rate(tidemark_rpc_request_seconds_bucket[$__rate_interval])))`,
						perServer + " {{kind}} p99"},
				}},
			{Title: "Requests by stage, p99", Description: "Where the time of requests goes on the " +
				"server. One in 64 is counted.", Unit: "s", Queries: []Query{
				{`histogram_quantile(0.99, sum by (instance, server, stage, le) ` +
					`(rate(tidemark_node_request_stage_seconds_bucket[$__rate_interval])))`,
					perServer + " {{stage}}"}}},
			{Title: "Requests at work", Description: "Requests that have begun and are not answered, and " +
				"how many may be, which falls while processors are short.", Unit: "short",
				Queries: []Query{
					{`sum by (instance, server) (tidemark_node_admission_working_requests)`,
						perServer + " at work"},
					{`sum by (instance, server) (tidemark_node_admission_limit_requests)`,
						perServer + " limit"}}},
			{Title: "Requests refused by the queue", Description: "Their user has too many requests to " +
				"the same keyspace in the queue; clients send them again later.", Unit: "reqps",
				Queries: []Query{{`sum by (instance, server) ` +
					`(rate(tidemark_node_admission_refused_total[$__rate_interval]))`, perServer}}},
			{Title: "Certificate", Description: "How long the server's certificate is good for.",
				Unit: "s", Queries: []Query{{`min by (instance, server) ` +
					`(tidemark_tls_certificate_expiry_timestamp_seconds) - time()`, perServer}},
				Empty: "only servers with TLS have a certificate"},
			{Title: "Throttled hosts", Description: "Processors are short, and hosts that use much of " +
				"them are slowed down: seconds that their connections paused, in a second.", Unit: "short",
				Queries: []Query{{`sum by (instance, server) ` +
					`(rate(tidemark_rpc_throttle_seconds_total[$__rate_interval]))`, perServer}}},
			level("Streams of clients", "short", "", `tidemark_rpc_client_streams`),
			{Title: "Refused", Description: "Strangers are programs that are not servers of this " +
				"cluster. Displaced clients open more than their share.", Unit: "ops", Queries: []Query{
				{`sum by (instance, server) ` +
					`(rate(tidemark_rpc_unauthenticated_peers_refused_total[$__rate_interval]))`,
					perServer + " strangers"},
				{`sum by (instance, server) ` +
					`(rate(tidemark_rpc_connections_displaced_total[$__rate_interval]))`,
					perServer + " connections displaced"},
				{`sum by (instance, server) ` +
					`(rate(tidemark_rpc_streams_displaced_total[$__rate_interval]))`,
					perServer + " streams displaced"},
				{`sum by (instance, server) ` +
					`(rate(tidemark_rpc_requests_without_memory_total[$__rate_interval]))`,
					perServer + " without memory"},
			}},
			rate("Servers found gone", "ops", "The process of another server was gone: connections to "+
				"it were refused. Its partitions elect other leaders without delay.",
				`tidemark_host_peers_gone_total`),
			{Title: "etcd calls that are passed on", Description: "Servers that are no members of the " +
				"core pass calls of the etcd API on to one. Unsent: no member was reached. Refused: the " +
				"client has too many open.", Unit: "ops", Queries: []Query{
				{`sum by (instance, server, outcome) ` +
					`(rate(tidemark_forward_calls_total[$__rate_interval]))`, perServer + " {{outcome}}"},
			}},
			level("etcd calls that are passed on and open", "short", "", `tidemark_forward_open_calls`),
			{Title: "Heartbeats to the core", Unit: "ops", Queries: []Query{
				{`sum by (instance, server) (rate(tidemark_node_heartbeats_total[$__rate_interval]))`,
					perServer + " answered"},
				{`sum by (instance, server) ` +
					`(rate(tidemark_node_heartbeats_failed_total[$__rate_interval]))`,
					perServer + " failed"},
			}},
		}},
	},
}
