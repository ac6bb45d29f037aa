package peer

import "github.com/tidemarkdb/tidemark/rpc/metric"

// metrics are the metrics of a Transport.
type metrics struct {
	classes                              [classes]*linkCounters
	received                             *metric.Counter
	sendingSnapshots, receivingSnapshots *metric.Gauge
	sentSnapshots, failedSnapshots       *metric.Counter
	receivedSnapshots, snapshotBytes     *metric.Counter
	receivedBytes                        *metric.Counter
}

// linkCounters count the traffic of all links of a class.
type linkCounters struct{ messages, bytes, dropped, streams *metric.Counter }

func newMetrics(r metric.Registry, realm string) *metrics {
	counter := func(name, help string, labels map[string]string) *metric.Counter {
		labels["realm"] = realm
		return metric.Register(r, metric.NewCounter(name, help, labels))
	}
	gauge := func(name, help string) *metric.Gauge {
		return metric.Register(r, metric.NewGauge(name, help, map[string]string{"realm": realm}))
	}
	m := &metrics{
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

func (m *metrics) class(c Class) *linkCounters { return m.classes[c] }
