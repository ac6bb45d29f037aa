package rpc

import (
	"errors"

	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/metric"
)

// batchMetrics are a BatchServer's.
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
		refused[reason] = register(r, metric.NewCounter("tidemark_rpc_requests_not_permitted_total",
			"Requests of clients that were refused because their users may not make them, or this "+
				"server cannot say.", map[string]string{"reason": name}))
	}
	return &batchMetrics{
		refused: refused,
		streams: register(r,
			metric.NewGauge("tidemark_rpc_client_streams", "Open streams of clients.", nil)),
		requests: register(r, metric.NewCounter("tidemark_rpc_requests_total",
			"Requests received from clients.", nil)),
		calls: register(r, metric.NewCounter("tidemark_rpc_method_calls_total",
			"Requests received from clients that were calls of methods which gRPC serves as well.", nil)),
		batches: register(r, metric.NewCounter("tidemark_rpc_request_batches_total",
			"Messages in which requests were received.", nil)),
		handoffs: register(r, metric.NewCounter("tidemark_rpc_slow_messages_total",
			"Messages of clients whose work took so long that another goroutine read on.", nil)),
		placesLost: register(r, metric.NewCounter("tidemark_rpc_streams_displaced_total",
			"Streams of clients that were ended because their host or certificate has opened more than "+
				"its share.", nil)),
		overloaded: register(r, metric.NewCounter("tidemark_rpc_requests_without_memory_total",
			"Requests of clients that were refused because there was no memory for them.", nil)),
		badReplies: register(r, metric.NewCounter("tidemark_rpc_bad_replies_total",
			"Responses dropped because they could not be encoded or belonged to no request. "+
				"Not 0: a bug.", nil)),
	}
}

// doorMetrics are those of a Server's connections.
type doorMetrics struct {
	placesLost, inboundClosed, refused, paused *metric.Counter
	receivedBytes, sentBytes                   *metric.Counter
}

func newDoorMetrics(r metric.Registry) *doorMetrics {
	return &doorMetrics{
		receivedBytes: register(r, metric.NewCounter("tidemark_rpc_client_received_bytes_total",
			"Bytes received on gRPC connections of clients, after TLS.", nil)),
		sentBytes: register(r, metric.NewCounter("tidemark_rpc_client_sent_bytes_total",
			"Bytes sent on gRPC connections of clients, before TLS.", nil)),
		placesLost: register(r, metric.NewCounter("tidemark_rpc_connections_displaced_total",
			"Connections that were closed because their host has opened more than its share.", nil)),
		inboundClosed: register(r, metric.NewCounter("tidemark_rpc_connections_over_budget_total",
			"gRPC connections that were closed because the incomplete messages of all connections had "+
				"exceeded their memory budget, and theirs were the largest.", nil)),
		paused: register(r, metric.NewCounter("tidemark_rpc_throttle_seconds_total",
			"For how long connections were throttled because their hosts used much of the processors "+
				"while others waited.", nil)),
		refused: register(r, metric.NewCounter("tidemark_rpc_unauthenticated_peers_refused_total",
			"Peer connections and calls that were refused, because the peer did not prove to be a "+
				"server of the cluster.", nil)),
	}
}

// register registers a collector, or gives the one of the same name that is registered already.
func register[C metric.Collector](r metric.Registry, c C) C {
	if r == nil {
		return c
	}
	if err := r.Register(c); err != nil {
		var already *metric.RegisteredError
		if errors.As(err, &already) {
			if existing, ok := already.Existing.(C); ok {
				return existing
			}
		}
	}
	return c
}

// peerMetrics are a PeerTransport's.
type peerMetrics struct {
	classes                              [classes]*linkCounters
	received                             *metric.Counter
	sendingSnapshots, receivingSnapshots *metric.Gauge
	sentSnapshots, failedSnapshots       *metric.Counter
	receivedSnapshots, snapshotBytes     *metric.Counter
	receivedBytes                        *metric.Counter
}

// linkCounters are those of all links of a class.
type linkCounters struct{ messages, bytes, dropped, streams *metric.Counter }

func newPeerMetrics(r metric.Registry, realm string) *peerMetrics {
	counter := func(name, help string, labels map[string]string) *metric.Counter {
		labels["realm"] = realm
		return register(r, metric.NewCounter(name, help, labels))
	}
	gauge := func(name, help string) *metric.Gauge {
		return register(r, metric.NewGauge(name, help, map[string]string{"realm": realm}))
	}
	m := &peerMetrics{
		receivedBytes: counter("tidemark_rpc_peer_received_bytes_total",
			"Bytes of Raft messages received from peers.", map[string]string{}),
		received: counter("tidemark_rpc_peer_received_messages_total",
			"Raft messages received from peers.", map[string]string{}),
		sendingSnapshots:   gauge("tidemark_rpc_sending_snapshots", "Snapshots being sent."),
		receivingSnapshots: gauge("tidemark_rpc_receiving_snapshots", "Snapshots being received."),
		sentSnapshots: counter("tidemark_rpc_sent_snapshots_total",
			"Snapshots sent and accepted.", map[string]string{}),
		failedSnapshots: counter("tidemark_rpc_failed_snapshots_total",
			"Snapshots that could not be sent, or were refused.", map[string]string{}),
		receivedSnapshots: counter("tidemark_rpc_received_snapshots_total",
			"Snapshots received and accepted.", map[string]string{}),
		snapshotBytes: counter("tidemark_rpc_sent_snapshot_bytes_total",
			"Bytes of snapshots sent.", map[string]string{}),
	}
	for c := range classes {
		labels := func() map[string]string { return map[string]string{"class": c.String()} }
		m.classes[c] = &linkCounters{
			messages: counter("tidemark_rpc_peer_sent_messages_total",
				"Raft messages queued to be sent to peers.", labels()),
			bytes: counter("tidemark_rpc_peer_sent_bytes_total",
				"Bytes of Raft messages queued to be sent to peers.", labels()),
			dropped: counter("tidemark_rpc_peer_dropped_messages_total",
				"Raft messages to peers that were dropped: queue full, or peer unreachable.",
				labels()),
			streams: counter("tidemark_rpc_peer_streams_total",
				"Streams to peers that were opened.", labels()),
		}
	}
	return m
}

func (m *peerMetrics) class(c Class) *linkCounters { return m.classes[c] }
