package monitoring

import "time"

var transactionAlerts = []Alert{
	{
		Name: "TidemarkTransactionsAborted",
		Expr: `
			(
			  sum by (job) (rate(tidemark_txn_conflicts_total[10m]))
			  + sum by (job) (rate(tidemark_txn_aborts_total{reason="wounded"}[10m]))
			)
			/ sum by (job) (rate(tidemark_txn_commits_total[10m])) > 1
			and sum by (job) (rate(tidemark_txn_conflicts_total[10m])) > 1`,
		For:      15 * time.Minute,
		Severity: Warning,
		Summary: "For each transaction that commits on {{ $labels.job }}, {{ $value | humanize }} " +
			"have to run again.",
		Description: `Many write the same keys. tidemark debug txns shows which waits for which;
			make the transactions shorter, lock what will be written as it is read (GetForUpdate), or
			spread the keys.`,
	},
	{
		Name: "TidemarkTransactionsCutOff",
		Expr: `
			sum by (job, reason)
			  (increase(tidemark_txn_aborts_total{reason=~"expired|idle|abandoned"}[15m])) > 30`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary: "{{ $labels.job }} aborts transactions that hold their locks for too long " +
			"({{ $labels.reason }}).",
		Description: `abandoned: clients die or lose their connection. expired, idle: they hold locks
			beyond the limits of their keyspace. tidemark txn list names the clients.`,
	},
	{
		Name: "TidemarkPushesFail",
		Expr: `
			sum by (job, instance, server)
			  (rate(tidemark_txn_push_outcomes_total{outcome="failed"}[5m])) > 1`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary:  "{{ $labels.instance }} gets no answer about transactions that are in the way.",
		Description: `Requests wait for locks whose coordinators do not answer: partitions without
			leader, or a network that is cut. tidemark status names such partitions.`,
	},
	{
		Name: "TidemarkPushesMany",
		Expr: `
			sum by (job) (rate(tidemark_txn_pushes_total[10m]))
			/ sum by (job) (rate(tidemark_txn_commits_total[10m])) > 10
			and sum by (job) (rate(tidemark_txn_pushes_total[10m])) > 100`,
		For:      15 * time.Minute,
		Severity: Warning,
		Summary:  "{{ $labels.job }} asks {{ $value | humanize }} times about others for each commit.",
		Description: `Much waits for few locks. tidemark debug txns shows the keys and the
			transactions that hold them; abort one that is forgotten with tidemark txn abort.`,
	},
	{
		Name: "TidemarkLockWaitsLong",
		Expr: `
			histogram_quantile(0.99, sum by (job, le)
			  (rate(tidemark_txn_lock_wait_seconds_bucket[10m]))) > 3`,
		For:      15 * time.Minute,
		Severity: Warning,
		Summary: "The slowest hundredth of waits for locks on {{ $labels.job }} takes " +
			"{{ $value | humanizeDuration }}.",
		Description: `tidemark txn list shows what holds locks for longest and how many wait for it.
			Give its keyspace a shorter --txn-max-age or --txn-max-idle if it is always the same
			application.`,
	},
	{
		Name: "TidemarkLocksPileUp",
		Expr: `
			sum by (job, instance, server) (tidemark_txn_locks) > 100000`,
		For:      30 * time.Minute,
		Severity: Warning,
		Summary:  "{{ $value | humanize }} keys are locked on {{ $labels.instance }}.",
		Description: `Transactions are never ended, or very large. tidemark txn list names them,
			tidemark txn abort ends one.`,
	},
	{
		Name: "TidemarkTransactionRecordsKept",
		Expr: `
			sum by (job, instance, server) (increase(tidemark_txn_records_kept_total[30m])) > 10`,
		For:      time.Hour,
		Severity: Warning,
		Summary:  "{{ $labels.instance }} cannot tidy up records of transactions.",
		Description: `A partition that they wrote to does not answer, and the outcomes are kept for
			it. Bring that partition back: tidemark status names those without leader.`,
	},
}
