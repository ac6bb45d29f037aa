package monitoring

import "time"

var diskAlerts = []Alert{
	{
		Name: "TidemarkDiskFailed",
		Expr: `
			max by (job, instance, server, part, engine) (tidemark_engine_failed) == 1`,
		Severity: Critical,
		Summary: "A disk of {{ $labels.instance }} has failed " +
			"({{ $labels.part }}/{{ $labels.engine }}).",
		Description: `The server serves nothing any more; the log names the file. Replace the
			disk and start a new server with an empty directory.`,
	},
	{
		Name: "TidemarkDataDamaged",
		Expr: `
			sum by (job, instance, server, part, engine) (tidemark_engine_corruptions_total) > 0`,
		Severity: Critical,
		Summary: "{{ $labels.instance }} has found damaged files ({{ $labels.part }}/" +
			"{{ $labels.engine }}).",
		Description: `Damaged data is never served; the log names the files. Test the disk and
			the memory of the machine, and replace the server if they cannot be trusted.`,
	},
	{
		Name: "TidemarkDiskFull",
		Expr: `
			max by (job, instance, server, part) (tidemark_engine_full) == 1`,
		For:      time.Minute,
		Severity: Critical,
		Summary:  "The disk of {{ $labels.instance }} is below its reserve ({{ $labels.part }}).",
		Description: `The node takes no writes and leads nothing. Delete other files, grow the
			volume, or drop a keyspace; the node then recovers automatically.`,
	},
	{
		Name: "TidemarkDiskSlow",
		Expr: `
			max by (job, instance, server, part) (tidemark_host_disk_slow) == 1`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary:  "The disk of {{ $labels.instance }} is slow ({{ $labels.part }}).",
		Description: `A sync of its log takes many times longer than on other servers. The server
			leads nothing meanwhile, and gets its leaderships back when the disk has recovered.`,
	},
	{
		Name: "TidemarkProcessorSlow",
		Expr: `
			max by (job, instance, server) (tidemark_host_processor_wait_seconds) >= 0.05`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary:  "{{ $labels.instance }} waits {{ $value | humanizeDuration }} for a processor.",
		Description: `Requests and heartbeats of the server are delayed by as much. Check what
			else runs on the machine, and the processor limit of the control group.`,
	},
	{
		Name: "TidemarkNetworkSlow",
		Expr: `
			max by (job, instance, server) (tidemark_host_round_trip_seconds) >= 0.01
			  and max by (job, instance, server) (tidemark_host_round_trip_seconds)
			    > on (job) group_left
			  8 * quantile by (job) (0.5, tidemark_host_round_trip_seconds)`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary:  "The network of {{ $labels.instance }} is slow.",
		Description: `A message to the server and back takes many times longer than between other
			servers. tidemark doctor shows the links of all pairs.`,
	},
	{
		Name: "TidemarkWritesRefusedByFullDisks",
		Expr: `
			sum by (job)
			  (rate(tidemark_replica_commands_total{outcome="disk_full"}[5m])) > 0.1`,
		For:      2 * time.Minute,
		Severity: Critical,
		Summary: "{{ $labels.job }} refuses {{ $value | humanize }} requests a second because disks " +
			"are full.",
		Description: `Partitions have no quorum of replicas with room. Make room on the nodes
			that tidemark status calls full.`,
	},
	{
		Name: "TidemarkDiskNearlyFull",
		Expr: `
			min by (job, instance, server, part) (tidemark_engine_free_bytes > 0) < 2 * 1024 ^ 3`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary:  "The disk of {{ $labels.instance }} has {{ $value | humanize1024 }}B left.",
		Description: `Make room before the free space falls below the reserve (some hundred MiB
			with the default sizes): then the node takes no writes.`,
	},
	{
		Name: "TidemarkDiskFillsUp",
		Expr: `
			min by (job, instance, server, part)
			  (predict_linear(tidemark_engine_free_bytes[1h], 4 * 3600)) < 0
			and on (job, instance, server, part)
			min by (job, instance, server, part) (tidemark_engine_free_bytes > 0) < 20 * 1024 ^ 3`,
		For:      30 * time.Minute,
		Severity: Warning,
		Summary:  "At this rate the disk of {{ $labels.instance }} is full within four hours.",
		Description: `Find out what writes to the disk: tidemark partitions shows the sizes of a
			keyspace's partitions. Grow the volume, or add nodes.`,
	},
	{
		Name: "TidemarkCompactionsFail",
		Expr: `
			sum by (job, instance, server, part, engine)
			  (increase(tidemark_engine_compactions_failed_total[15m])) > 3`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary: "Compactions fail on {{ $labels.instance }} " +
			"({{ $labels.part }}/{{ $labels.engine }}).",
		Description: `Reads get slower and the disk fills. Compactions are given up when the disk
			has little room left; otherwise the log gives the reason.`,
	},
	{
		Name: "TidemarkWriteStalls",
		Expr: `
			sum by (job, instance, server, part, engine)
			  (rate(tidemark_engine_write_stalls_total[5m])) > 0.1`,
		For:      10 * time.Minute,
		Severity: Warning,
		Summary: "Writes on {{ $labels.instance }} wait for flushes or compactions " +
			"({{ $labels.part }}/{{ $labels.engine }}).",
		Description: `Clients write more than the disk can compact: write less, use a faster
			disk, or add nodes.`,
	},
}
