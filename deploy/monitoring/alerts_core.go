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
			restart may not join. Start the core servers that are missing, until a majority of the --core
			list runs; the network between them has to work.`,
	},
	{
		Name:     "TidemarkCoordinationWithoutLeader",
		Expr:     `sum by (job) (tidemark_placement_store_leader{store="coordination"}) == 0`,
		For:      time.Minute,
		Severity: Critical,
		Summary:  "The coordination store of {{ $labels.job }} has no leader.",
		Description: `Locks, elections and whatever else is kept in it cannot be read or written, and
			leases do not run out. Start the core servers that are missing, until a majority of the
			core's members runs. Data is served.`,
	},
	{
		Name:     "TidemarkCoreMemberDown",
		Expr:     `max by (job) (tidemark_core_members_silent) > 0`,
		For:      2 * time.Minute,
		Severity: Critical,
		Summary:  "{{ $value }} members of the core of {{ $labels.job }} do not answer.",
		Description: `Of a core of three, no other member may fail: the core and the coordination store
			would have no leader. tidemark status names them; start them again, or replace them with
			tidemark core replace.`,
	},
	{
		Name: "TidemarkCoordinationNearQuota",
		Expr: `
			max by (job) (tidemark_placement_store_bytes{store="coordination"}
			/ (tidemark_placement_store_quota_bytes{store="coordination"} > 0)) > 0.9`,
		For:      10 * time.Minute,
		Severity: Warning,
		Summary:  "The coordination store of {{ $labels.job }} nears its quota.",
		Description: `At the quota the NOSPACE alarm is raised, and puts and leases are refused: delete
			what is not needed, compact the history, or give the members a higher --core-quota.`,
	},
	{
		Name:     "TidemarkNodesCutOff",
		Expr:     `max by (job) (tidemark_placement_links_silent) > 0`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary:  "Nodes of {{ $labels.job }} that run do not hear each other.",
		Description: `tidemark status names the pairs. Partitions with a leader on one side have a
			replica less, and clients may reach either side only: see to the network between the
			two.`,
	},
	{
		Name:     "TidemarkReplicasBehind",
		Expr:     `max by (job) (tidemark_placement_replicas_behind) > 0`,
		For:      15 * time.Minute,
		Severity: Warning,
		Summary:  "Replicas of {{ $labels.job }} have not caught up for a quarter of an hour.",
		Description: `tidemark status says on which nodes. A node that is down does not catch up:
			start it. One that runs may have a slow disk, or be sent snapshots one after the other.`,
	},
	{
		Name: "TidemarkNodesDown",
		Expr: `
			(tidemark_placement_nodes - tidemark_placement_nodes_alive > 0)
			and on (job, instance, server) tidemark_placement_store_leader{store!="coordination"} == 1`,
		For:      2 * time.Minute,
		Severity: Critical,
		Summary:  "{{ $value }} data nodes of {{ $labels.job }} are down.",
		Description: `Their partitions have fewer replicas than they should. tidemark nodes says
			which ones; start them again.`,
	},
	{
		Name: "TidemarkHeartbeatsFail",
		Expr: `
			sum by (job, instance, server) (rate(tidemark_node_heartbeats_failed_total[5m])) > 0.05`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary:  "{{ $labels.instance }} does not reach the core.",
		Description: `It serves what it has, and learns nothing new. See whether the core has a
			leader, and whether this server reaches all addresses of --core.`,
	},
	{
		Name: "TidemarkCoreSlow",
		Expr: `
			histogram_quantile(0.99,
			  sum by (job, store, le) (rate(tidemark_placement_store_command_seconds_bucket[10m]))) > 1`,
		For:      10 * time.Minute,
		Severity: Warning,
		Summary:  "The slowest hundredth of the core's commands takes {{ $value | humanizeDuration }}.",
		Description: `Look at the disks of core servers, and give them machines without other work
			if nodes keep them busy.`,
	},
	{
		Name: "TidemarkCoreChangeStuck",
		Expr: `
			max by (job) (tidemark_core_membership_change_step_age_seconds) > 300
			or max by (job) (tidemark_core_membership_change_age_seconds) > 3600`,
		For:      time.Minute,
		Severity: Warning,
		Summary: "A change of the members of the core of {{ $labels.job }} has not got on for " +
			"{{ $value | humanizeDuration }}.",
		Description: `tidemark core list says what it waits for: mostly a server that does not answer.
			Start it, or take the newcomer back with tidemark core remove.`,
	},
	{
		Name: "TidemarkCoreOverloaded",
		Expr: `
			sum by (job, instance, server, store)
			  (increase(tidemark_placement_store_overloaded_total[10m])) > 0`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary:  "The core refuses commands because too many wait, on {{ $labels.instance }}.",
		Description: `Find what asks so much of it: keyspaces created in a loop, or nodes that
			register again and again. Then its disk.`,
	},
}
