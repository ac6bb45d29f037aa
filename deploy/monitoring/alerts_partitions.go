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
		Description: `These partitions cannot be read or written. tidemark status names them, and
			tidemark nodes shows the nodes that are down: start these nodes. A majority of each
			partition's replicas has to run.`,
	},
	{
		Name: "TidemarkServerSeesNoLeaders",
		Expr: `
			max by (job, instance, server) (tidemark_node_leaderless_partitions) > 0`,
		For:      time.Minute,
		Severity: Critical,
		Summary: "{{ $labels.instance }} knows no leader of {{ $value }} partitions of which it has " +
			"a replica.",
		Description: `If other servers know leaders of these partitions, this server is cut off
			from them: check the network between servers. Otherwise the partitions have lost their
			majority: start the missing nodes.`,
	},
	{
		Name: "TidemarkReplicasBroken",
		Expr: `
			max by (job, instance, server) (tidemark_node_broken_replicas) > 0`,
		For:      time.Minute,
		Severity: Critical,
		Summary:  "{{ $value }} replicas on the disk of {{ $labels.instance }} cannot be opened.",
		Description: `The log names each replica and gives the reason. The partitions go on with
			their other replicas, of which one fewer may be lost. If the disk cannot be trusted,
			replace the server.`,
	},
	{
		Name: "TidemarkReplicasFailed",
		Expr: `
			sum by (job, instance, server) (tidemark_node_replicas_failed_total) > 0
			or sum by (job, instance, server) (tidemark_host_failed_groups_total) > 0
			or sum by (job, instance, server) (tidemark_replica_failures_total) > 0`,
		Severity: Critical,
		Summary:  "{{ $value }} replicas on {{ $labels.instance }} have failed since it started.",
		Description: `The log gives the reason. A failed replica does not take part until the
			server is restarted. Check the disk before the restart, and /debug/replicas after it.`,
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
		Description: `Find a server that restarts again and again, is slow, or has a full disk.
			With a longer --retain-log, followers can catch up by the log.`,
	},
	{
		Name: "TidemarkClosedTimestampsLag",
		Expr: `
			max by (job, instance, server, leader) (tidemark_node_closed_ts_lag_seconds) > 30`,
		For:      2 * time.Minute,
		Severity: Warning,
		Summary: "{{ $labels.instance }} can be read only as of {{ $value }} seconds ago, or more, " +
			"in partitions that node {{ $labels.leader }} leads.",
		Description: `Reads at the nearest replica are older than they should be, or go to the
			leader. The leading node does not reach this server, its clock is not trusted, or this
			server does not keep up with the log.`,
	},
	{
		Name: "TidemarkChangeFeedsLag",
		Expr: `
			histogram_quantile(1, sum by (job, instance, server, le)
			  (rate(tidemark_replica_feed_lag_seconds_bucket[5m]))) > 30`,
		For:      10 * time.Minute,
		Severity: Warning,
		Summary: "Changes that {{ $labels.instance }} sends to change feeds are " +
			"{{ $value | humanizeDuration }} old, or older.",
		Description: `At least one partition is delayed: a transaction that is not decided holds
			locks, or the replica lags behind. The progress of the whole feed, and of its consumer,
			waits for that partition.`,
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
		Description: `A replica that needs a snapshot stays behind. The log names the receiver:
			check that it runs, has room on its disk, and can be reached.`,
	},
	{
		Name: "TidemarkReplicaChangesStalled",
		Expr: `
			sum by (job, instance, server)
			  (increase(tidemark_node_replica_changes_stalled_total[15m])) > 0`,
		Severity: Warning,
		Summary:  "Creating or removing replicas waits for the disk of {{ $labels.instance }}.",
		Description: `The disk does not answer or is very slow. Check the disk, and the kernel's
			log.`,
	},
	{
		Name: "TidemarkLeadersMisplaced",
		Expr: `
			max by (job, instance, server) (tidemark_node_misplaced_leaders) > 0`,
		For:      time.Hour,
		Severity: Warning,
		Summary: "{{ $labels.instance }} has led {{ $value }} partitions for an hour that other nodes " +
			"should lead.",
		Description: `A node that should lead does not take over: it is down, its disk is full or
			slow, its clock is wrong, or its replicas lag.`,
	},
	{
		Name: "TidemarkGarbageCollectionFails",
		Expr: `
			sum by (job, instance, server) (increase(tidemark_node_gc_failures_total[30m])) > 5`,
		For:      10 * time.Minute,
		Severity: Warning,
		Summary:  "Garbage collections fail on {{ $labels.instance }}.",
		Description: `Old versions stay, and the disk fills. The log gives the reason of each
			failure: usually partitions without a quorum, or a full disk.`,
	},
}
