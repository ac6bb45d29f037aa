package rpc

import (
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/metric"
)

// batchMetrics are the metrics of a BatchServer.
type batchMetrics struct {
	streams    *metric.Gauge
	requests   *metric.Counter
	calls      *metric.Counter
	batches    *metric.Counter
	badReplies *metric.Counter
	handoffs   *metric.Counter
	placesLost *metric.Counter
	overloaded *metric.Counter
	refused    map[access.Reason]*metric.Counter
}

func newBatchMetrics(r metric.Registry) *batchMetrics {
	refused := make(map[access.Reason]*metric.Counter)
	for reason, name := range map[access.Reason]string{access.Unauthenticated: "unauthenticated",
		access.Denied: "denied", access.Unknown: "unknown"} {
		refused[reason] = metric.Register(r,
			metric.NewCounter("tidemark_rpc_requests_not_permitted_total",
				"Requests of clients that were refused because their users may not make them, or this "+
					"server cannot say.", map[string]string{"reason": name}))
	}
	return &batchMetrics{
		refused: refused,
		streams: metric.Register(r,
			metric.NewGauge("tidemark_rpc_client_streams", "Open streams of clients.", nil)),
		requests: metric.Register(r, metric.NewCounter("tidemark_rpc_requests_total",
			"Requests received from clients.", nil)),
		calls: metric.Register(r, metric.NewCounter("tidemark_rpc_method_calls_total",
			"Requests received from clients that were calls of methods which gRPC serves as well.", nil)),
		batches: metric.Register(r, metric.NewCounter("tidemark_rpc_request_batches_total",
			"Messages in which requests were received.", nil)),
		handoffs: metric.Register(r, metric.NewCounter("tidemark_rpc_slow_messages_total",
			"Messages of clients whose work took so long that another goroutine read on.", nil)),
		placesLost: metric.Register(r, metric.NewCounter("tidemark_rpc_streams_displaced_total",
			"Streams of clients that were ended because their host or certificate has opened more than "+
				"its share.", nil)),
		overloaded: metric.Register(r, metric.NewCounter("tidemark_rpc_requests_without_memory_total",
			"Requests of clients that were refused because there was no memory for them.", nil)),
		badReplies: metric.Register(r, metric.NewCounter("tidemark_rpc_bad_replies_total",
			"Responses dropped because they could not be encoded or belonged to no request. "+
				"Not 0: a bug.", nil)),
	}
}

// doorMetrics are the metrics of a Server's connections.
type doorMetrics struct {
	placesLost, inboundClosed, refused, paused *metric.Counter
	receivedBytes, sentBytes                   *metric.Counter
}

func newDoorMetrics(r metric.Registry) *doorMetrics {
	return &doorMetrics{
		receivedBytes: metric.Register(r, metric.NewCounter("tidemark_rpc_client_received_bytes_total",
			"Bytes received on gRPC connections of clients, after TLS.", nil)),
		sentBytes: metric.Register(r, metric.NewCounter("tidemark_rpc_client_sent_bytes_total",
			"Bytes sent on gRPC connections of clients, before TLS.", nil)),
		placesLost: metric.Register(r, metric.NewCounter("tidemark_rpc_connections_displaced_total",
			"Connections that were closed because their host has opened more than its share.", nil)),
		inboundClosed: metric.Register(r, metric.NewCounter("tidemark_rpc_connections_over_budget_total",
			"gRPC connections that were closed because the incomplete messages of all connections had "+
				"exceeded their memory budget, and theirs were the largest.", nil)),
		paused: metric.Register(r, metric.NewCounter("tidemark_rpc_throttle_seconds_total",
			"For how long connections were throttled because their hosts used much of the processors "+
				"while others waited.", nil)),
		refused: metric.Register(r, metric.NewCounter("tidemark_rpc_unauthenticated_peers_refused_total",
			"Peer connections and calls that were refused, because the peer did not prove to be a "+
				"server of the cluster.", nil)),
	}
}
