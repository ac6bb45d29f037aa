package monitoring

import "time"

var serverAlerts = []Alert{
	{
		Name:     "TidemarkServerDown",
		Expr:     `up{job=~".*tidemark.*"} == 0`,
		For:      2 * time.Minute,
		Severity: Critical,
		Summary:  "{{ $labels.instance }} does not answer Prometheus.",
		Description: `See whether the process runs and the machine can be reached; start it again with
			the same directory. Its partitions go on while a majority of their replicas does; a second
			loss may stop some.`,
	},
	{
		Name: "TidemarkServerNotStarted",
		Expr: `
			up{job=~".*tidemark.*"} == 1
			unless on (job, instance) tidemark_placement_store_leader
			unless on (job, instance) tidemark_node_unhealthy`,
		For:      5 * time.Minute,
		Severity: Critical,
		Summary:  "{{ $labels.instance }} runs, and is neither a node nor a member of the core yet.",
		Description: `Ask its /readyz what it waits for: usually other servers of the --core list,
			free disk space, or a directory that is not its own.`,
	},
	{
		Name: "TidemarkServerRestarts",
		Expr: `
			changes(process_start_time_seconds[1h]) > 2
			and on (job, instance) tidemark_build_info`,
		Severity:    Warning,
		Summary:     "{{ $labels.instance }} has restarted {{ $value }} times within an hour.",
		Description: `Read the end of its log before each start, and the kernel's log for kills.`,
	},
	{
		Name: "TidemarkMemoryHigh",
		Expr: `
			process_resident_memory_bytes
			> on (job, instance) 1.05 * sum by (job, instance) (tidemark_memory_limit_bytes)`,
		For:      15 * time.Minute,
		Severity: Warning,
		Summary: "{{ $labels.instance }} has {{ $value | humanize1024 }}B of memory, more than its " +
			"memory limit.",
		Description: `Caches, queues and requests are bounded by --memory-limit. Take a heap profile.`,
	},
	{
		Name: "TidemarkFileDescriptorsLow",
		Expr: `
			process_open_fds / process_max_fds > 0.8
			and on (job, instance) tidemark_build_info`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary:  "{{ $labels.instance }} has {{ $value | humanizePercentage }} of its files open.",
		Description: `Raise the limit of open files (LimitNOFILE of systemd), and see whether
			clients open more connections than they need.`,
	},
	{
		Name: "TidemarkVersionsDiffer",
		Expr: `
			count by (job) (count by (job, version) (tidemark_build_info)) > 1`,
		For:      time.Hour,
		Severity: Warning,
		Summary:  "The servers of {{ $labels.job }} have run {{ $value }} versions for an hour.",
		Description: `Finish the upgrade, or go back: the changelog says which versions talk to
			each other.`,
	},
	{
		Name: "TidemarkUpgradeNotFinalized",
		Expr: `
			time() - (max by (job) (tidemark_upgrade_ready_timestamp_seconds) > 0) > 7 * 24 * 3600`,
		For:      10 * time.Minute,
		Severity: Warning,
		Summary: "Every server of {{ $labels.job }} has run a new release for a week, and the upgrade " +
			"is not finalised.",
		Description: `New formats and messages are not used before that, and the next release cannot be
			installed. tidemark upgrade status says what changes, tidemark upgrade finalize does it.`,
	},
	{
		Name: "TidemarkProcessPauses",
		Expr: `
			max by (job, instance, server) (increase(tidemark_host_pauses_total[1h])) > 3`,
		Severity: Warning,
		Summary:  "{{ $labels.instance }} stood still again and again within an hour.",
		Description: `The process got no processor for an election timeout or more, so that others
			took over what it led. Look for a machine that is overloaded or swaps, processor limits of its
			container, and virtual machines that are stopped or moved.`,
	},
	{
		Name: "TidemarkCertificateExpires",
		Expr: `
			min by (job, instance, server)
			  (tidemark_tls_certificate_expiry_timestamp_seconds) - time() < 14 * 86400`,
		Severity: Warning,
		Summary: "The certificate of {{ $labels.instance }} runs out in " +
			"{{ $value | humanizeDuration }}.",
		Description: `Renew it: when it has run out, neither clients nor servers connect to this
			server any more. The server takes new files without a restart.`,
	},
	{
		Name: "TidemarkCertificateNearlyExpired",
		Expr: `
			min by (job, instance, server)
			  (tidemark_tls_certificate_expiry_timestamp_seconds) - time() < 2 * 86400`,
		Severity: Critical,
		Summary: "The certificate of {{ $labels.instance }} runs out in " +
			"{{ $value | humanizeDuration }}.",
		Description: `Renew it now. When it has run out, neither clients nor servers connect to this
			server any more, and certificates that were made together run out together.`,
	},
}
