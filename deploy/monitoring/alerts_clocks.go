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
		Description: `Put its clock right: NTP has to run and be synchronised (chronyc tracking).
			It goes on by itself when the clocks of its peers agree with it.`,
	},
	{
		Name: "TidemarkClockOffsetHigh",
		Expr: `
			max by (job, instance, server) (abs(tidemark_node_clock_offset_seconds)) > 0.1`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary: "Clocks differ by {{ $value | humanizeDuration }}, as " +
			"{{ $labels.instance }} sees it.",
		Description: `At 250 ms (--max-offset) servers stop serving. The server that all others
			differ from is wrong: repair NTP there.`,
	},
	{
		Name: "TidemarkClockJumps",
		Expr: `
			sum by (job, instance, server) (increase(tidemark_node_clock_jumps_total[1h])) > 0`,
		Severity: Warning,
		Summary:  "The clock of {{ $labels.instance }} has jumped.",
		Description: `Something sets it, or stops the machine. Let NTP slew it, and do not suspend or
			move the virtual machine.`,
	},
	{
		Name: "TidemarkRequestsAhead",
		Expr: `
			sum by (job, instance, server) (rate(tidemark_node_future_timestamp_requests_total[5m])) > 1`,
		For:      10 * time.Minute,
		Severity: Warning,
		Summary:  "Requests to {{ $labels.instance }} name moments ahead of its clock.",
		Description: `Compare the clocks of all servers (tidemark_node_clock_offset_seconds). If they
			agree, a client asks for the future with --at.`,
	},
}
