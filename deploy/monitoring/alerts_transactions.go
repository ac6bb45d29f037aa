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
		Description: `Many transactions write the same keys. tidemark debug txns shows which
			transaction waits for which. Make transactions shorter, lock keys that will be written
			when they are read (GetForUpdate), or spread the writes over more keys.`,
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
		Description: `abandoned: clients end or lose their connections. expired, idle:
			transactions hold locks beyond the limits of their keyspace. tidemark txn list shows the
			clients.`,
	},
	{
		Name: "TidemarkPushesFail",
		Expr: `
			sum by (job, instance, server)
			  (rate(tidemark_txn_push_outcomes_total{outcome="failed"}[5m])) > 1`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary:  "{{ $labels.instance }} gets no answers about transactions whose locks are in the way.",
		Description: `Requests wait for locks whose coordinators do not answer: partitions have
			no leader, or the network is cut. tidemark status names such partitions.`,
	},
	{
		Name: "TidemarkPushesMany",
		Expr: `
			sum by (job) (rate(tidemark_txn_pushes_total[10m]))
			/ sum by (job) (rate(tidemark_txn_commits_total[10m])) > 10
			and sum by (job) (rate(tidemark_txn_pushes_total[10m])) > 100`,
		For:      15 * time.Minute,
		Severity: Warning,
		Summary: "{{ $labels.job }} asks about other transactions {{ $value | humanize }} times for each " +
			"commit.",
		Description: `Many requests wait for few locks. tidemark debug txns shows the keys and
			the transactions that hold them; tidemark txn abort ends a forgotten transaction.`,
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
		Description: `tidemark txn list shows the transactions that have held locks for longest,
			and how many requests wait for them. If they are always those of one application, give
			its keyspace a shorter --txn-max-age or --txn-max-idle.`,
	},
	{
		Name: "TidemarkLocksPileUp",
		Expr: `
			sum by (job, instance, server) (tidemark_txn_locks) > 100000`,
		For:      30 * time.Minute,
		Severity: Warning,
		Summary:  "{{ $value | humanize }} keys are locked on {{ $labels.instance }}.",
		Description: `Transactions are never ended, or very large. tidemark txn list shows them;
			tidemark txn abort ends a transaction.`,
	},
	{
		Name: "TidemarkTransactionRecordsKept",
		Expr: `
			sum by (job, instance, server) (increase(tidemark_txn_records_kept_total[30m])) > 10`,
		For:      time.Hour,
		Severity: Warning,
		Summary:  "{{ $labels.instance }} cannot remove records of committed transactions.",
		Description: `A partition to which the transactions wrote does not answer, and their
			outcomes are kept for that partition. tidemark status names partitions without a leader:
			bring the partition back.`,
	},
}
