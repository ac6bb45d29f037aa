package monitoring

import "time"

var partitionAlerts = []Alert{
	{
		Name: "TidemarkPartitionsWithoutLeader",
		Expr: `
			(tidemark_placement_partitions - tidemark_placement_partitions_led > 0)
			and on (job, instance, server) tidemark_placement_store_leader{store!="coordination"} == 1`,
		For:      time.Minute,
		Severity: Critical,
		Summary:  "{{ $value }} partitions of {{ $labels.job }} have no leader, as the core sees it.",
		Description: `They cannot be read or written. tidemark status names them, and tidemark nodes
			the nodes that are down: start those, a majority of each partition's replicas has to run.`,
	},
	{
		Name: "TidemarkServerSeesNoLeaders",
		Expr: `
			max by (job, instance, server) (tidemark_node_leaderless_partitions) > 0`,
		For:      time.Minute,
		Severity: Critical,
		Summary: "{{ $labels.instance }} knows no leader of {{ $value }} partitions that it has " +
			"a replica of.",
		Description: `If other servers see leaders, this one is cut off from them: look at the network
			between servers. Otherwise the partitions have lost their majority: start the missing nodes.`,
	},
	{
		Name: "TidemarkReplicasBroken",
		Expr: `
			max by (job, instance, server) (tidemark_node_broken_replicas) > 0`,
		For:      time.Minute,
		Severity: Critical,
		Summary:  "{{ $value }} replicas on the disk of {{ $labels.instance }} do not open.",
		Description: `The log names each of them and says why. Their partitions go on with the other
			replicas, and one fewer may be lost. If the disk cannot be trusted, replace the server.`,
	},
	{
		Name: "TidemarkReplicasFailed",
		Expr: `
			sum by (job, instance, server) (tidemark_node_replicas_failed_total) > 0
			or sum by (job, instance, server) (tidemark_host_failed_groups_total) > 0
			or sum by (job, instance, server) (tidemark_replica_failures_total) > 0`,
		Severity: Critical,
		Summary:  "{{ $value }} replicas on {{ $labels.instance }} have failed since it started.",
		Description: `The log says why. A failed replica stays out until the server is restarted; look
			at the disk before that, and at /debug/replicas after it.`,
	},
	{
		Name: "TidemarkReplicasLag",
		Expr: `
			sum by (job, instance, server) (increase(tidemark_host_snapshots_sent_total[15m])) > 20
			or sum by (job, instance, server) (rate(tidemark_host_refused_appends_total[5m])) > 1`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary: "Followers do not keep up: {{ $labels.instance }} sends many snapshots, or takes " +
			"no entries.",
		Description: `Look for a server that is down again and again, or slow, or whose disk is full;
			a longer --retain-log lets followers catch up by the log.`,
	},
	{
		Name: "TidemarkClosedTimestampsLag",
		Expr: `
			max by (job, instance, server, leader) (tidemark_node_closed_ts_lag_seconds) > 30`,
		For:      2 * time.Minute,
		Severity: Warning,
		Summary: "{{ $labels.instance }} can be read only as of {{ $value }} seconds ago, or more, " +
			"where node {{ $labels.leader }} leads.",
		Description: `Reads at the nearest replica are older than they should be, or go to the leader:
			that node does not reach this server, its clock is not believed, or this server does not
			keep up with the log.`,
	},
	{
		Name: "TidemarkChangeFeedsLag",
		Expr: `
			histogram_quantile(1, sum by (job, instance, server, le)
			  (rate(tidemark_replica_feed_lag_seconds_bucket[5m]))) > 30`,
		For:      10 * time.Minute,
		Severity: Warning,
		Summary: "Change feeds hear from {{ $labels.instance }} only of what was written " +
			"{{ $value | humanizeDuration }} ago, or earlier.",
		Description: `At least one partition there is held up: by locks of a transaction that is not
			decided, or because what its replica has is old. The whole feed's progress waits for it, and
			so do consumers of changes.`,
	},
	{
		Name: "TidemarkSnapshotsFail",
		Expr: `
			sum by (job, instance, server) (increase(tidemark_rpc_failed_snapshots_total[15m])) > 3
			or sum by (job, instance, server)
			  (increase(tidemark_host_snapshots_failed_total[15m])) > 3`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary:  "Snapshots that {{ $labels.instance }} sends fail.",
		Description: `A replica that needs one stays behind. The log names the receiver: see whether
			it runs, has room on its disk, and can be reached.`,
	},
	{
		Name: "TidemarkReplicaChangesStalled",
		Expr: `
			sum by (job, instance, server)
			  (increase(tidemark_node_replica_changes_stalled_total[15m])) > 0`,
		Severity:    Warning,
		Summary:     "Creating or removing replicas waits for the disk of {{ $labels.instance }}.",
		Description: `The disk stands still or is very slow. Look at it, and at the kernel's log.`,
	},
	{
		Name: "TidemarkLeadersMisplaced",
		Expr: `
			max by (job, instance, server) (tidemark_node_misplaced_leaders) > 0`,
		For:      time.Hour,
		Severity: Warning,
		Summary: "{{ $labels.instance }} has led {{ $value }} partitions for an hour that others " +
			"should lead.",
		Description: `A node that should lead does not take over: it is down, its disk is full or
			slow, its clock is wrong, or it lags.`,
	},
	{
		Name: "TidemarkGarbageCollectionFails",
		Expr: `
			sum by (job, instance, server) (increase(tidemark_node_gc_failures_total[30m])) > 5`,
		For:      10 * time.Minute,
		Severity: Warning,
		Summary:  "Garbage collections fail on {{ $labels.instance }}.",
		Description: `Old versions stay, and the disk fills. The log says why each failed: usually
			partitions without quorum, or a disk that is full.`,
	},
}
