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
		Summary:  "{{ $labels.instance }} refuses many who speak as servers and are not.",
		Description: `The log says from where and why. A server of this cluster has a wrong
			or expired certificate, or another secret: put it right. Anything else should not reach
			the port.`,
	},
	{
		Name: "TidemarkPeerMessagesRefused",
		Expr: `
			sum by (job, instance, server, reason)
			  (increase(tidemark_host_messages_refused_total[15m])) > 10`,
		For:      5 * time.Minute,
		Severity: Warning,
		Summary: "{{ $labels.instance }} refuses messages of peers that cannot be " +
			"({{ $labels.reason }}).",
		Description: `The log names the peer and the partition. Many from one server are that
			server's: stop it and look at its disk and memory. Or another process speaks in its name.`,
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
		Description: `A peer is down or slow, or this server is overloaded. See tidemark nodes, the
			network, and the processor and disk of both sides.`,
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
		Description: `Find the host or certificate with very many connections: each program needs one
			client, not one for each request.`,
	},
	{
		Name:     "TidemarkBadReplies",
		Expr:     `sum by (job, instance, server) (increase(tidemark_rpc_bad_replies_total[1h])) > 0`,
		Severity: Warning,
		Summary:  "{{ $labels.instance }} made answers that it could not send.",
		Description: `This is a mistake in Tidemark. Keep the log and report it. Requests without an
			answer end by their timeout.`,
	},
}
