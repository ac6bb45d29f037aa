package monitoring

var transactions = Dashboard{
	Name: "transactions", Title: "Tidemark / Transactions",
	Description: "Commits, what is in their way, and locks.",
	Rows: []Row{
		{"Transactions", []Panel{
			rateBy("phases", "Commits", "ops", "one: in one partition. two: over several.",
				`tidemark_txn_commits_total`),
			chart("Run again", "percentunit", "Attempts that met a conflict, beside commits.",
				`sum(rate(tidemark_txn_conflicts_total[$__rate_interval]))
/ sum(rate(tidemark_txn_commits_total[$__rate_interval]))`, "conflicts for each commit"),
			rateBy("reason", "Aborts", "ops", "rolled_back: by the client, also to run again. "+
				"wounded: an older one wanted a lock. abandoned: the client fell silent. expired, idle: "+
				"locks held for too long.", `tidemark_txn_aborts_total`),
			rateBy("why", "Reads moved to a later moment", "ops", "",
				`tidemark_txn_read_restarts_total`),
			with("only transactions with commit wait wait",
				quantiles("Commit wait", "About the width of the clock bound.",
					"tidemark_txn_commit_wait_seconds", "")),
			rate("Records kept", "ops", "Grows without end: a partition does not answer, and outcomes "+
				"are kept for it.", `tidemark_txn_records_kept_total`),
		}},
		{"Locks", []Panel{
			level("Keys locked", "short", "Grows without end: transactions that are never ended.",
				`tidemark_txn_locks`),
			rateBy("what", "Waits for locks", "ops", "", `tidemark_txn_lock_waits_total`),
			quantiles("Time of waits for locks", "", "tidemark_txn_lock_wait_seconds", ""),
			rateBy("kind", "Pushes", "ops", "Questions to coordinators about transactions in the way.",
				`tidemark_txn_pushes_total`),
			rateBy("outcome", "Answers to pushes", "ops", "failed: a coordinator does not answer.",
				`tidemark_txn_push_outcomes_total`),
			rateBy("outcome", "Locks ended", "ops", "late: acquired after their transaction was over.",
				`tidemark_txn_locks_resolved_total`),
			level("Spans held", "short", "Transactions that were not lucky twice hold what they read.",
				`tidemark_txn_span_locks`),
			rate("Spans not held", "ops", "Too many are held already.",
				`tidemark_txn_span_locks_refused_total`),
		}},
	},
}
