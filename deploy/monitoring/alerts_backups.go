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
}
