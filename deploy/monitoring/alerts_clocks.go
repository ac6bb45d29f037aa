package monitoring

import "time"

var clockAlerts = []Alert{
	{
		Name: "TidemarkClockUntrusted",
		Expr: `
			max by (job, instance, server) (tidemark_node_unhealthy) == 1
			unless on (job, instance, server)
			max by (job, instance, server) (tidemark_engine_failed{part="node"}) == 1`,
		For:      time.Minute,
		Severity: Critical,
		Summary:  "{{ $labels.instance }} serves nothing because its clock is not trusted.",
		Description: `Correct its clock: NTP has to run and be synchronised (chronyc tracking).
			The server serves again when the clocks of most of its peers agree with its clock.`,
	},
	{
		Name: "TidemarkClockOffsetHigh",
		Expr: `
			max by (job, instance, server) (abs(tidemark_node_clock_offset_seconds)) > 0.1`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary: "Clocks differ by {{ $value | humanizeDuration }}, as " +
			"{{ $labels.instance }} sees it.",
		Description: `At 250 ms (--max-offset) servers stop serving. The clock that differs from
			all others is wrong: repair NTP on that server.`,
	},
	{
		Name: "TidemarkClockJumps",
		Expr: `
			sum by (job, instance, server) (increase(tidemark_node_clock_jumps_total[1h])) > 0`,
		Severity: Warning,
		Summary:  "The clock of {{ $labels.instance }} has jumped.",
		Description: `Something sets the clock, or stops the machine. Let NTP slew the clock, and
			do not suspend or move the virtual machine.`,
	},
	{
		Name: "TidemarkRequestsAhead",
		Expr: `
			sum by (job, instance, server) (rate(tidemark_node_future_timestamp_requests_total[5m])) > 1`,
		For:      10 * time.Minute,
		Severity: Warning,
		Summary:  "Requests to {{ $labels.instance }} name timestamps ahead of its clock.",
		Description: `Compare the clocks of all servers (tidemark_node_clock_offset_seconds). If
			the clocks agree, a client reads at a future time (--at), or its own clock is wrong.`,
	},
}
