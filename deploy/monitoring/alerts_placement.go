package monitoring

import "time"

var placementAlerts = []Alert{
	{
		Name: "TidemarkPartitionsUnavailable",
		Expr: `
			max by (job) (tidemark_placement_partitions_unavailable) > 0`,
		For:      time.Minute,
		Severity: Critical,
		Summary:  "{{ $value }} partitions of {{ $labels.job }} have fewer replicas than a majority.",
		Description: `Nothing is done about them by itself. tidemark why PARTITION names the nodes that
			are needed: start those.`,
	},
	{
		Name: "TidemarkPartitionsUnderReplicated",
		Expr: `
			max by (job) (tidemark_placement_partitions_under_replicated) > 0`,
		For:      30 * time.Minute,
		Severity: Warning,
		Summary: "{{ $value }} partitions of {{ $labels.job }} have had fewer replicas than they " +
			"should for half an hour.",
		Description: `Lost replicas are replaced by themselves, if a node can take them. tidemark why
			PARTITION says what that waits for: room, limits, more nodes, or a pause of placement.`,
	},
	{
		Name: "TidemarkPartitionFrozen",
		Expr: `
			max by (job) (tidemark_placement_frozen_partition_oldest_age_seconds) > 60`,
		For:      time.Minute,
		Severity: Critical,
		Summary: "A partition of {{ $labels.job }} has been frozen for more than a minute: it serves " +
			"nothing.",
		Description: `Its left neighbour is to consume it, which takes a moment, or is taken back.
			tidemark partitions says which one is frozen, and tidemark why PARTITION what that waits
			for.`,
	},
	{
		Name: "TidemarkPlacementStuck",
		Expr: `
			max by (job) (tidemark_placement_operator_oldest_age_seconds) > 3600`,
		For:      time.Minute,
		Severity: Warning,
		Summary:  "A change of replicas of {{ $labels.job }} has been under way for more than an hour.",
		Description: `tidemark operators says what it waits for. tidemark move PARTITION --cancel takes
			it back.`,
	},
	{
		Name: "TidemarkConsumerBehind",
		Expr: `
			max by (job, keyspace) (tidemark_core_consumer_retention_used_ratio) > 0.5`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary: "A consumer of the changes of keyspace {{ $labels.keyspace }} of {{ $labels.job }} " +
			"is behind by {{ $value | humanizePercentage }} of the time for which history is " +
			"kept for it.",
		Description: `tidemark consumers KEYSPACE says which one. See why its process does not go on; if
			there is none any more, tidemark consumers delete KEYSPACE NAME. Beyond its time it has to
			read everything anew; until then what it has not taken takes room on disk.`,
	},
}
