package monitoring

import "time"

var serverAlerts = []Alert{
	{
		Name:     "TidemarkServerDown",
		Expr:     `up{job=~".*tidemark.*"} == 0`,
		For:      2 * time.Minute,
		Severity: Critical,
		Summary:  "{{ $labels.instance }} does not answer Prometheus.",
		Description: `Check that the process runs and that the machine can be reached; start the
			server again with the same directory. Its partitions go on while a majority of their
			replicas runs; after a second loss some partitions may stop.`,
	},
	{
		Name: "TidemarkServerNotStarted",
		Expr: `
			up{job=~".*tidemark.*"} == 1
			unless on (job, instance) tidemark_placement_store_leader
			unless on (job, instance) tidemark_node_unhealthy`,
		For:      5 * time.Minute,
		Severity: Critical,
		Summary:  "{{ $labels.instance }} runs, but is neither a node nor a member of the core yet.",
		Description: `Its page /readyz says what it waits for: usually other servers of the
			--core list, free disk space, or the right directory.`,
	},
	{
		Name: "TidemarkServerRestarts",
		Expr: `
			changes(process_start_time_seconds[1h]) > 2
			and on (job, instance) tidemark_build_info`,
		Severity: Warning,
		Summary:  "{{ $labels.instance }} has restarted {{ $value }} times within an hour.",
		Description: `Read the end of its log before each start, and look for kills in the
			kernel's log.`,
	},
	{
		Name: "TidemarkMemoryHigh",
		Expr: `
			process_resident_memory_bytes
			> on (job, instance) 1.05 * sum by (job, instance) (tidemark_memory_limit_bytes)`,
		For:      15 * time.Minute,
		Severity: Warning,
		Summary: "{{ $labels.instance }} uses {{ $value | humanize1024 }}B of memory, more than its " +
			"memory limit.",
		Description: `Caches, queues and requests are bounded by --memory-limit. Take a heap
			profile, and report it.`,
	},
	{
		Name: "TidemarkFileDescriptorsLow",
		Expr: `
			process_open_fds / process_max_fds > 0.8
			and on (job, instance) tidemark_build_info`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary: "{{ $labels.instance }} has opened {{ $value | humanizePercentage }} of the files that " +
			"it may open.",
		Description: `Raise the limit of open files (LimitNOFILE of systemd), and check whether
			clients open more connections than they need.`,
	},
	{
		Name: "TidemarkVersionsDiffer",
		Expr: `
			count by (job) (count by (job, version) (tidemark_build_info)) > 1`,
		For:      time.Hour,
		Severity: Warning,
		Summary:  "The servers of {{ $labels.job }} have run {{ $value }} versions for an hour.",
		Description: `Finish the upgrade, or go back. tidemark upgrade status shows the version
			of each server.`,
	},
	{
		Name: "TidemarkUpgradeNotFinalized",
		Expr: `
			time() - (max by (job) (tidemark_upgrade_ready_timestamp_seconds) > 0) > 7 * 24 * 3600`,
		For:      10 * time.Minute,
		Severity: Warning,
		Summary: "Every server of {{ $labels.job }} has run a new release for a week, and the upgrade " +
			"is not finalised.",
		Description: `Until then the new formats and messages are not used, and the next release
			cannot be installed. tidemark upgrade status shows what finalising changes; tidemark
			upgrade finalize finalises the upgrade.`,
	},
	{
		Name: "TidemarkProcessPauses",
		Expr: `
			max by (job, instance, server) (increase(tidemark_host_pauses_total[1h])) > 3`,
		Severity: Warning,
		Summary:  "The process of {{ $labels.instance }} got no processor several times within an hour.",
		Description: `Each time, it got no processor for an election timeout or more, and other
			servers took over its leaderships. Look for a machine that is overloaded or swaps, for
			processor limits of its container, and for virtual machines that are stopped or moved.`,
	},
	{
		Name: "TidemarkCertificateExpires",
		Expr: `
			min by (job, instance, server)
			  (tidemark_tls_certificate_expiry_timestamp_seconds) - time() < 14 * 86400`,
		Severity: Warning,
		Summary: "The certificate of {{ $labels.instance }} expires in " +
			"{{ $value | humanizeDuration }}.",
		Description: `Renew it. After that time neither clients nor servers can connect to this
			server. The server takes new files without a restart.`,
	},
	{
		Name: "TidemarkCertificateNearlyExpired",
		Expr: `
			min by (job, instance, server)
			  (tidemark_tls_certificate_expiry_timestamp_seconds) - time() < 2 * 86400`,
		Severity: Critical,
		Summary: "The certificate of {{ $labels.instance }} expires in " +
			"{{ $value | humanizeDuration }}.",
		Description: `Renew it now. After that time neither clients nor servers can connect to
			this server. Certificates that were made together expire together.`,
	},
}
