package monitoring

import "time"

var requestAlerts = []Alert{
	{
		Name: "TidemarkRequestsFail",
		Expr: `
			sum by (job) (rate(tidemark_replica_commands_total{
			  outcome=~"no_quorum|node_unhealthy|clock_skew|deadline_exceeded|corruption|replica_damaged"
			}[5m]))
			/ sum by (job) (rate(tidemark_replica_commands_total[5m])) > 0.01`,
		For:      5 * time.Minute,
		Severity: Critical,
		Summary:  "{{ $value | humanizePercentage }} of the requests to {{ $labels.job }} fail.",
		Description: `The dashboard of partitions shows failed requests by outcome. Other alerts
			usually give the cause: nodes that are down, clocks, or damaged replicas.`,
	},
	{
		Name: "TidemarkRequestsOverloaded",
		Expr: `
			sum by (job, instance, server)
			  (rate(tidemark_replica_commands_total{outcome="overloaded"}[5m]))
			/ sum by (job, instance, server) (rate(tidemark_replica_commands_total[5m])) > 0.01`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary: "{{ $labels.instance }} refuses {{ $value | humanizePercentage }} of its requests " +
			"as overloaded.",
		Description: `Clients send the requests again later. Find the resource that is short: the
			disk of the log (tidemark_raftlog_pending_bytes), the processor, or one partition that
			gets most of the load.`,
	},
	{
		Name: "TidemarkAdmissionQueueLong",
		Expr: `
			histogram_quantile(0.99, sum by (job, instance, server, le)
			  (rate(tidemark_node_admission_wait_seconds_bucket{priority="normal"}[5m]))) > 0.25
			and on (job, instance, server) sum by (job, instance, server)
			  (increase(tidemark_node_admission_wait_seconds_count{priority="normal"}[5m])) > 1000`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary: "{{ $labels.instance }} gets more requests than it can handle: requests wait " +
			"{{ $value | humanizeDuration }} before they begin.",
		Description: `Processors are short. One in a hundred of the requests that have to wait
			waits at least that long. Tenants (a user and a keyspace) have equal shares; the tenant
			that asks for most waits longest.`,
	},
	{
		Name: "TidemarkRequestsWithoutMemory",
		Expr: `
			sum by (job, instance, server)
			  (increase(tidemark_rpc_requests_without_memory_total[10m])) > 10`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary:  "{{ $labels.instance }} refuses requests of clients for lack of memory.",
		Description: `Clients have more unanswered requests, or larger ones, than their share of
			the part requests of the memory limit. Let them send less at once, or raise
			--memory-limit.`,
	},
	{
		Name: "TidemarkReadsSlow",
		Expr: `
			histogram_quantile(0.99, sum by (job, instance, server, le)
			  (rate(tidemark_rpc_request_seconds_bucket{kind="read"}[10m]))) > 0.5
			and on (job, instance, server) sum by (job, instance, server)
			  (increase(tidemark_rpc_request_seconds_count{kind="read"}[10m])) > 100`,
		For:      10 * time.Minute,
		Severity: Warning,
		Summary: "The slowest hundredth of reads on {{ $labels.instance }} takes " +
			"{{ $value | humanizeDuration }}.",
		Description: `The time is measured on the server, without the network. Reads wait for
			locks, for a disk or for a processor, or read very many rows.`,
	},
	{
		Name: "TidemarkWritesSlow",
		Expr: `
			histogram_quantile(0.99, sum by (job, instance, server, le)
			  (rate(tidemark_rpc_request_seconds_bucket{kind="write"}[10m]))) > 1
			and on (job, instance, server) sum by (job, instance, server)
			  (increase(tidemark_rpc_request_seconds_count{kind="write"}[10m])) > 100`,
		For:      10 * time.Minute,
		Severity: Warning,
		Summary: "The slowest hundredth of writes on {{ $labels.instance }} takes " +
			"{{ $value | humanizeDuration }}.",
		Description: `The time is measured on the server, without the network. Writes wait for
			the log syncs of a quorum, for locks, and for earlier writes.`,
	},
	{
		Name: "TidemarkLogSyncSlow",
		Expr: `
			histogram_quantile(0.99, sum by (job, instance, server, le)
			  (rate(tidemark_raftlog_sync_seconds_bucket{part="node"}[5m]))) > 0.1`,
		For:      10 * time.Minute,
		Severity: Warning,
		Summary: "The slowest hundredth of log syncs on {{ $labels.instance }} takes " +
			"{{ $value | humanizeDuration }}.",
		Description: `Every write waits for a sync on a quorum. Another program uses the disk, or
			the disk is too slow: put node/log on a faster disk.`,
	},
	{
		Name: "TidemarkApplySlow",
		Expr: `
			histogram_quantile(0.99, sum by (job, instance, server, le)
			  (rate(tidemark_replica_apply_seconds_bucket[5m]))) > 0.25`,
		For:      10 * time.Minute,
		Severity: Warning,
		Summary: "The slowest hundredth of applies on {{ $labels.instance }} takes " +
			"{{ $value | humanizeDuration }}.",
		Description: `Writes are answered after they are applied. Check the processor of the
			machine, write stalls, and the disk of node/state.`,
	},
	{
		Name: "TidemarkLogBacklog",
		Expr: `
			max by (job, instance, server) (tidemark_raftlog_pending_bytes{part="node"})
			> on (job, instance, server)
			0.5 * max by (job, instance, server) (tidemark_memory_part_bytes{use="raft-pending"})`,
		For:      2 * time.Minute,
		Severity: Warning,
		Summary:  "{{ $value | humanize1024 }}B wait for the log's disk on {{ $labels.instance }}.",
		Description: `At twice that size, writes are refused as overloaded. The disk of node/log
			does not answer, or is too slow for the load.`,
	},
}
