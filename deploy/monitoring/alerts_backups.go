package monitoring

import "time"

// The threshold of TidemarkBackupOld is for a backup a day; change it where they are made more
// often.
var backupAlerts = []Alert{
	{
		Name: "TidemarkBackupOld",
		Expr: `
			time() - max by (job) (tidemark_backup_last_complete_timestamp_seconds > 0) > 26 * 3600`,
		For:      10 * time.Minute,
		Severity: Warning,
		Summary: "The newest complete backup of {{ $labels.job }} is {{ $value | humanizeDuration }} " +
			"old.",
		Description: `What was written since then would be lost with the cluster. tidemark backup jobs
			says what became of the last ones; tidemark backup create makes one.`,
	},
	{
		Name: "TidemarkBackupFailed",
		Expr: `
			sum by (job) (increase(tidemark_backup_ended_total{outcome="failed"}[1h])) > 0`,
		Severity: Warning,
		Summary:  "A backup or restore of {{ $labels.job }} has failed.",
		Description: `tidemark backup jobs -o json says why, and mostly what to do. What a failed one
			has written stays until tidemark backup cancel ID; make it again afterwards.`,
	},
	{
		Name: "TidemarkBackupStuck",
		Expr: `
			time() - max by (job) (tidemark_backup_progress_timestamp_seconds > 0) > 1800`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary: "A backup or restore of {{ $labels.job }} has made no progress for " +
			"{{ $value | humanizeDuration }}.",
		Description: `tidemark backup jobs -o json has its step and its last failure. Others wait behind
			it. It is given up after an hour without progress; tidemark backup cancel ID ends it at
			once.`,
	},
	{
		Name: "TidemarkBackupScheduleLate",
		Expr: `
			time() - max by (job, schedule) (tidemark_backup_schedule_last_backup_timestamp_seconds)
			> 2 * max by (job, schedule) (tidemark_backup_schedule_interval_seconds > 0) + 600`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary: "The newest backup of the schedule {{ $labels.schedule }} of {{ $labels.job }} is " +
			"{{ $value | humanizeDuration }} old.",
		Description: `That is more than twice the time between two backups. tidemark backup schedule
			list says what has failed. History that the next one needs is kept for --keep-history only.`,
	},
	{
		Name: "TidemarkBackupLogBehind",
		Expr: `
			time() - max by (job, schedule) (tidemark_backup_schedule_log_timestamp_seconds)
			> 300 and on (job, schedule)
			max by (job, schedule) (tidemark_backup_schedule_interval_seconds) > 0`,
		For:      2 * time.Minute,
		Severity: Warning,
		Summary: "The log of the schedule {{ $labels.schedule }} of {{ $labels.job }} has no changes " +
			"of the last {{ $value | humanizeDuration }}.",
		Description: `They would be lost with the cluster. tidemark backup schedule list says why the
			log does not go on.`,
	},
	{
		Name: "TidemarkBackupChainBroken",
		Expr: `
			max by (job, schedule) (tidemark_backup_schedule_broken) > 0`,
		For:      10 * time.Minute,
		Severity: Warning,
		Summary: "The chain of backups of the schedule {{ $labels.schedule }} of {{ $labels.job }} is " +
			"broken.",
		Description: `No incremental backup can continue it, and the full one that is to follow is not
			complete yet. tidemark backup schedule list says why.`,
	},
	{
		Name: "TidemarkBackupLogGap",
		Expr: `
			sum by (job, schedule) (increase(tidemark_backup_log_gaps_total[1h])) > 0`,
		Severity: Warning,
		Summary:  "The log of the schedule {{ $labels.schedule }} of {{ $labels.job }} has a gap.",
		Description: `History was collected before the log was written. Another log has begun; moments
			from the end of the one before to the next backup cannot be restored.`,
	},
}
