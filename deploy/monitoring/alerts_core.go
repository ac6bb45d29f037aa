package monitoring

import "time"

var coreAlerts = []Alert{
	{
		Name:     "TidemarkCoreWithoutLeader",
		Expr:     `sum by (job) (tidemark_placement_store_leader{store!="coordination"}) == 0`,
		For:      time.Minute,
		Severity: Critical,
		Summary:  "The core of {{ $labels.job }} has no leader.",
		Description: `Data is served, but keyspaces cannot be created or dropped, and nodes that
			restart may not join. Start the missing core servers until a majority of the members
			runs, and check the network between them.`,
	},
	{
		Name:     "TidemarkCoordinationWithoutLeader",
		Expr:     `sum by (job) (tidemark_placement_store_leader{store="coordination"}) == 0`,
		For:      time.Minute,
		Severity: Critical,
		Summary:  "The coordination store of {{ $labels.job }} has no leader.",
		Description: `Locks, elections and other data of the coordination store cannot be read or
			written; leases do not run out. Start the missing core servers until a majority of the
			core's members runs. Keyspaces are served.`,
	},
	{
		Name:     "TidemarkCoreMemberDown",
		Expr:     `max by (job) (tidemark_core_members_silent) > 0`,
		For:      2 * time.Minute,
		Severity: Critical,
		Summary:  "{{ $value }} members of the core of {{ $labels.job }} do not answer.",
		Description: `If another member of a core of three fails, the core and the coordination
			store have no leader. tidemark status names the members that do not answer: start them
			again, or replace them with tidemark core replace.`,
	},
	{
		Name: "TidemarkCoordinationNearQuota",
		Expr: `
			max by (job) (tidemark_placement_store_bytes{store="coordination"}
			/ (tidemark_placement_store_quota_bytes{store="coordination"} > 0)) > 0.9`,
		For:      10 * time.Minute,
		Severity: Warning,
		Summary:  "The coordination store of {{ $labels.job }} nears its quota.",
		Description: `At the quota the NOSPACE alarm is raised, and puts and new leases are
			refused. Delete keys that are not needed, compact the history, or give the members a
			higher --core-quota.`,
	},
	{
		Name:     "TidemarkNodesCutOff",
		Expr:     `max by (job) (tidemark_placement_links_silent) > 0`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary:  "Nodes of {{ $labels.job }} that run do not hear each other.",
		Description: `tidemark status names the pairs. Partitions with a leader on one side have
			one replica fewer, and clients may reach only one side. Repair the network between the
			two nodes.`,
	},
	{
		Name:     "TidemarkReplicasBehind",
		Expr:     `max by (job) (tidemark_placement_replicas_behind) > 0`,
		For:      15 * time.Minute,
		Severity: Warning,
		Summary:  "Replicas of {{ $labels.job }} have not caught up for a quarter of an hour.",
		Description: `tidemark status names the nodes. A node that is down does not catch up:
			start it. A node that runs may have a slow disk, or may receive one snapshot after the
			other.`,
	},
	{
		Name: "TidemarkNodesDown",
		Expr: `
			(tidemark_placement_nodes - tidemark_placement_nodes_alive > 0)
			and on (job, instance, server) tidemark_placement_store_leader{store!="coordination"} == 1`,
		For:      2 * time.Minute,
		Severity: Critical,
		Summary:  "{{ $value }} data nodes of {{ $labels.job }} are down.",
		Description: `Their partitions have fewer replicas than they should. tidemark nodes names
			the nodes; start them again.`,
	},
	{
		Name: "TidemarkHeartbeatsFail",
		Expr: `
			sum by (job, instance, server) (rate(tidemark_node_heartbeats_failed_total[5m])) > 0.05`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary:  "{{ $labels.instance }} does not reach the core.",
		Description: `The server serves its replicas, but does not learn of changes. Check that
			the core has a leader, and that this server reaches all addresses of --core.`,
	},
	{
		Name: "TidemarkCoreSlow",
		Expr: `
			histogram_quantile(0.99,
			  sum by (job, store, le) (rate(tidemark_placement_store_command_seconds_bucket[10m]))) > 1`,
		For:      10 * time.Minute,
		Severity: Warning,
		Summary:  "The slowest hundredth of the core's commands takes {{ $value | humanizeDuration }}.",
		Description: `Check the disks of core servers. If data nodes keep these machines busy,
			give the core machines of its own.`,
	},
	{
		Name: "TidemarkCoreChangeStuck",
		Expr: `
			max by (job) (tidemark_core_membership_change_step_age_seconds) > 300
			or max by (job) (tidemark_core_membership_change_age_seconds) > 3600`,
		For:      time.Minute,
		Severity: Warning,
		Summary: "A change of the members of the core of {{ $labels.job }} has made no progress for " +
			"{{ $value | humanizeDuration }}.",
		Description: `tidemark core list shows what the change waits for: usually a server that
			does not answer. Start that server, or cancel the addition of a member with tidemark
			core remove.`,
	},
	{
		Name: "TidemarkCoreOverloaded",
		Expr: `
			sum by (job, instance, server, store)
			  (increase(tidemark_placement_store_overloaded_total[10m])) > 0`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary:  "The core refuses commands because too many wait, on {{ $labels.instance }}.",
		Description: `Find the source of the commands: a program that creates keyspaces in a
			loop, or nodes that register again and again. Then check the disk of the core server.`,
	},
}
