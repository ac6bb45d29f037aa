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
		Description: `Later writes would be lost with the cluster. tidemark backup jobs shows how
			the last backups ended; tidemark backup create makes a backup.`,
	},
	{
		Name: "TidemarkBackupFailed",
		Expr: `
			sum by (job) (increase(tidemark_backup_ended_total{outcome="failed"}[1h])) > 0`,
		Severity: Warning,
		Summary:  "A backup or restore of {{ $labels.job }} has failed.",
		Description: `tidemark backup jobs -o json gives the reason. The objects of a failed
			backup stay in the target until tidemark backup cancel ID; after that, start the backup
			again.`,
	},
	{
		Name: "TidemarkBackupStuck",
		Expr: `
			time() - max by (job) (tidemark_backup_progress_timestamp_seconds > 0) > 1800`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary: "A backup or restore of {{ $labels.job }} has made no progress for " +
			"{{ $value | humanizeDuration }}.",
		Description: `tidemark backup jobs -o json shows its step and its last failure. Other
			backups and restores wait behind it. It fails after an hour without progress; tidemark
			backup cancel ID ends it at once.`,
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
		Description: `That is more than twice the time between two backups. tidemark backup
			schedule list shows what has failed. The history that the next incremental backup needs
			is kept for --keep-history only.`,
	},
	{
		Name: "TidemarkBackupLogBehind",
		Expr: `
			time() - max by (job, schedule) (tidemark_backup_schedule_log_timestamp_seconds)
			> 300 and on (job, schedule)
			max by (job, schedule) (tidemark_backup_schedule_interval_seconds) > 0`,
		For:      2 * time.Minute,
		Severity: Warning,
		Summary: "The log of the schedule {{ $labels.schedule }} of {{ $labels.job }} lacks the changes " +
			"of the last {{ $value | humanizeDuration }}.",
		Description: `These changes would be lost with the cluster. tidemark backup schedule list
			shows why the log does not continue.`,
	},
	{
		Name: "TidemarkBackupChainBroken",
		Expr: `
			max by (job, schedule) (tidemark_backup_schedule_broken) > 0`,
		For:      10 * time.Minute,
		Severity: Warning,
		Summary: "The chain of backups of the schedule {{ $labels.schedule }} of {{ $labels.job }} is " +
			"broken.",
		Description: `No incremental backup can continue the chain, and the full backup that is
			to follow is not complete yet. tidemark backup schedule list gives the reason.`,
	},
	{
		Name: "TidemarkBackupLogGap",
		Expr: `
			sum by (job, schedule) (increase(tidemark_backup_log_gaps_total[1h])) > 0`,
		Severity: Warning,
		Summary:  "The log of the schedule {{ $labels.schedule }} of {{ $labels.job }} has a gap.",
		Description: `History was collected before it was written to the log. A new log has
			begun; moments between the end of the previous log and the next backup cannot be
			restored.`,
	},
}
