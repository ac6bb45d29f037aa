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
		Description: `The server serves nothing any more; the log names the file. Replace the disk and
			start a new server with an empty directory.`,
	},
	{
		Name: "TidemarkDataDamaged",
		Expr: `
			sum by (job, instance, server, part, engine) (tidemark_engine_corruptions_total) > 0`,
		Severity: Critical,
		Summary: "{{ $labels.instance }} has met damaged files ({{ $labels.part }}/" +
			"{{ $labels.engine }}).",
		Description: `Nothing damaged is served; the log names the files. Test the disk and the
			memory of the machine, and replace the server if they cannot be trusted.`,
	},
	{
		Name: "TidemarkDiskFull",
		Expr: `
			max by (job, instance, server, part) (tidemark_engine_full) == 1`,
		For:      time.Minute,
		Severity: Critical,
		Summary:  "The disk of {{ $labels.instance }} is below its reserve ({{ $labels.part }}).",
		Description: `It takes no writes and leads nothing. Delete other files, grow the volume, or
			drop a keyspace; it goes on by itself.`,
	},
	{
		Name: "TidemarkDiskSlow",
		Expr: `
			max by (job, instance, server, part) (tidemark_host_disk_slow) == 1`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary:  "The disk of {{ $labels.instance }} is slow ({{ $labels.part }}).",
		Description: `Its log takes many times longer to sync than those of other servers. It leads
			nothing meanwhile, and gets its leaderships back when the disk is well.`,
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
		Description: `Partitions have no quorum of replicas with room. Make room on the nodes that
			tidemark status calls full.`,
	},
	{
		Name: "TidemarkDiskNearlyFull",
		Expr: `
			min by (job, instance, server, part) (tidemark_engine_free_bytes > 0) < 2 * 1024 ^ 3`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary:  "The disk of {{ $labels.instance }} has {{ $value | humanize1024 }}B left.",
		Description: `Make room before it falls below the reserve, some hundred MiB with the default
			sizes, and takes no writes.`,
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
		Description: `Find out what writes: tidemark partitions shows the sizes of a keyspace.
			Grow the volume, or add nodes before new keyspaces.`,
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
		Description: `Reads get slower and the disk fills. They are given up when the disk has little
			room left; otherwise the log says why.`,
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
		Description: `More is written than the disk can tidy up: write less, use a faster disk, or
			spread the partitions over more nodes.`,
	},
}
