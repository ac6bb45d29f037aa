package monitoring

import "time"

var placementAlerts = []Alert{
	{
		Name: "TidemarkPartitionsUnavailable",
		Expr: `
			max by (job) (tidemark_placement_partitions_unavailable) > 0`,
		For:      time.Minute,
		Severity: Critical,
		Summary:  "No majority of the replicas answers in {{ $value }} partitions of {{ $labels.job }}.",
		Description: `These partitions are not repaired automatically. tidemark why PARTITION
			names the nodes that are needed: start them.`,
	},
	{
		Name: "TidemarkPartitionsUnderReplicated",
		Expr: `
			max by (job) (tidemark_placement_partitions_under_replicated) > 0`,
		For:      30 * time.Minute,
		Severity: Warning,
		Summary: "{{ $value }} partitions of {{ $labels.job }} have had fewer replicas than they " +
			"should for half an hour.",
		Description: `Lost replicas are replaced automatically if a node can take them. tidemark
			why PARTITION shows what the replacement waits for: room, limits, more nodes, or paused
			placement.`,
	},
	{
		Name: "TidemarkPartitionFrozen",
		Expr: `
			max by (job) (tidemark_placement_frozen_partition_oldest_age_seconds) > 60`,
		For:      time.Minute,
		Severity: Critical,
		Summary: "A partition of {{ $labels.job }} has been frozen for more than a minute: it serves " +
			"nothing.",
		Description: `The partition is to be merged into its left neighbour; an attempt normally
			ends within seconds. tidemark partitions shows the frozen partition, and tidemark why
			PARTITION what the merge waits for.`,
	},
	{
		Name: "TidemarkPlacementStuck",
		Expr: `
			max by (job) (tidemark_placement_operator_oldest_age_seconds) > 3600`,
		For:      time.Minute,
		Severity: Warning,
		Summary:  "A change of replicas of {{ $labels.job }} has been under way for more than an hour.",
		Description: `tidemark operators shows what the change waits for. tidemark move PARTITION
			--cancel cancels it.`,
	},
	{
		Name: "TidemarkConsumerBehind",
		Expr: `
			max by (job, keyspace) (tidemark_core_consumer_retention_used_ratio) > 0.5`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary: "The lag of a consumer of keyspace {{ $labels.keyspace }} of {{ $labels.job }} is " +
			"{{ $value | humanizePercentage }} of the time for which history is kept for it.",
		Description: `tidemark consumers KEYSPACE shows the consumer. Find out why its process
			does not continue; if the consumer is not needed any more, delete it with tidemark
			consumers delete KEYSPACE NAME. Versions that it has not read take room on disk. Beyond
			its time, it has to read the whole keyspace again.`,
	},
	{
		Name: "TidemarkKeyspaceQuotaNear",
		Expr: `
			max by (job, keyspace, quota) (tidemark_core_keyspace_quota_used_ratio) > 0.8`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary: "Keyspace {{ $labels.keyspace }} of {{ $labels.job }} uses " +
			"{{ $value | humanizePercentage }} of its quota ({{ $labels.quota }}).",
		Description: `At the quota requests are refused: for stored bytes those that add data, for
			requests and throughput all beyond it. tidemark keyspace describe KEYSPACE shows what is used,
			tidemark keyspace alter KEYSPACE changes the quota.`,
	},
	{
		Name: "TidemarkKeyspaceQuotaReached",
		Expr: `
			max by (job, keyspace, quota) (tidemark_core_keyspace_quota_used_ratio) >= 1`,
		For:      time.Minute,
		Severity: Warning,
		Summary: "Keyspace {{ $labels.keyspace }} of {{ $labels.job }} has reached its quota " +
			"({{ $labels.quota }}): requests are refused.",
		Description: `Clients get kv.ErrQuota. For stored bytes: delete data, and wait for the GC window,
			or raise the quota. For requests and throughput: find the client that asks for so much
			(tidemark slow, tidemark top), or raise the quota with tidemark keyspace alter KEYSPACE.`,
	},
}
