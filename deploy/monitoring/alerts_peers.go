package monitoring

import "time"

var peerAlerts = []Alert{
	{
		Name: "TidemarkStrangersRefused",
		Expr: `
			sum by (job, instance, server)
			  (increase(tidemark_rpc_unauthenticated_peers_refused_total[15m])) > 10`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary:  "{{ $labels.instance }} refuses many callers that claim to be servers.",
		Description: `The log has the address and the reason. If the caller is a server of this
			cluster, its certificate is wrong or expired, or it has another secret: correct that.
			Keep all other callers away from the port.`,
	},
	{
		Name: "TidemarkPeerMessagesRefused",
		Expr: `
			sum by (job, instance, server, reason)
			  (increase(tidemark_host_messages_refused_total[15m])) > 10`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary:  "{{ $labels.instance }} refuses impossible messages of peers ({{ $labels.reason }}).",
		Description: `The log names the peer and the partition. If many messages come from one
			server, stop that server and test its disk and memory. Otherwise another process may
			speak in its name.`,
	},
	{
		Name: "TidemarkPeerMessagesDropped",
		Expr: `
			sum by (job, instance, server)
			  (rate(tidemark_rpc_peer_dropped_messages_total{class="consensus"}[5m])) > 5
			or sum by (job, instance, server) (rate(tidemark_host_inbox_full_total[5m])) > 1`,
		For:      10 * time.Minute,
		Severity: Warning,
		Summary:  "Raft messages are dropped on {{ $labels.instance }}.",
		Description: `A peer is down or slow, or this server is overloaded. Check tidemark nodes,
			the network, and the processors and disks of both sides.`,
	},
	{
		Name: "TidemarkClientsDisplaced",
		Expr: `
			sum by (job, instance, server) (
			  increase(tidemark_rpc_connections_displaced_total[15m])
			  + increase(tidemark_rpc_streams_displaced_total[15m])) > 10`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary:  "Clients of {{ $labels.instance }} open more connections than their share.",
		Description: `Find the host or certificate with very many connections: a program needs
			one client, not one client for each request.`,
	},
	{
		Name:     "TidemarkBadReplies",
		Expr:     `sum by (job, instance, server) (increase(tidemark_rpc_bad_replies_total[1h])) > 0`,
		Severity: Warning,
		Summary:  "{{ $labels.instance }} made responses that it could not send.",
		Description: `This is a bug in Tidemark. Keep the log and report it. Requests without a
			response end by their timeouts.`,
	},
}
