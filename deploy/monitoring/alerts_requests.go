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
		Description: `The dashboard of partitions shows them by outcome. Other alerts usually say why:
			nodes that are down, clocks, damaged replicas.`,
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
		Description: `Clients send them again, later. See which is short: the disk of the log
			(tidemark_raftlog_pending_bytes), the processor, or one partition that gets everything.`,
	},
	{
		Name: "TidemarkRequestsWithoutMemory",
		Expr: `
			sum by (job, instance, server)
			  (increase(tidemark_rpc_requests_without_memory_total[10m])) > 10`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary:  "{{ $labels.instance }} has no memory for requests of clients.",
		Description: `Clients have more unanswered requests, or larger ones, than their share of
			1 GiB. Let them send less at once, or use more hosts.`,
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
		Description: `As the server sees it, without the network. Reads wait for locks, for a disk,
			for the processor, or are of very many rows.`,
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
		Description: `As the server sees it, without the way to the client. Writes wait for the syncs
			of a quorum, for locks, and for writes before them.`,
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
		Description: `Every write waits for them. Something else uses the disk, or it is too slow:
			put node/log on a faster one.`,
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
		Description: `Writes are answered after they are applied. Look at the processor of the
			machine, at write stalls, and at the disk of node/state.`,
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
		Description: `With twice as much, writes are refused as overloaded. The disk of node/log stands
			still or is too slow for what is written.`,
	},
}
