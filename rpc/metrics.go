package rpc

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// batchMetrics are a BatchServer's.
type batchMetrics struct {
	streams    prometheus.Gauge
	requests   prometheus.Counter
	batches    prometheus.Counter
	badReplies prometheus.Counter
	reliefs    prometheus.Counter
}

func newBatchMetrics(r prometheus.Registerer) *batchMetrics {
	return &batchMetrics{
		streams:    register(r, prometheus.NewGauge(prometheus.GaugeOpts{Name: "tidemark_rpc_client_streams", Help: "Open streams of clients."})),
		requests:   register(r, prometheus.NewCounter(prometheus.CounterOpts{Name: "tidemark_rpc_requests_total", Help: "Requests received from clients."})),
		batches:    register(r, prometheus.NewCounter(prometheus.CounterOpts{Name: "tidemark_rpc_request_batches_total", Help: "Messages in which requests were received."})),
		reliefs:    register(r, prometheus.NewCounter(prometheus.CounterOpts{Name: "tidemark_rpc_slow_messages_total", Help: "Messages of clients whose work took so long that another goroutine read on."})),
		badReplies: register(r, prometheus.NewCounter(prometheus.CounterOpts{Name: "tidemark_rpc_bad_replies_total", Help: "Responses dropped because they could not be encoded or belonged to no request. Not 0: a bug."})),
	}
}

// register registers a collector, or gives the one of the same name that is registered already.
func register[C prometheus.Collector](r prometheus.Registerer, c C) C {
	if r == nil {
		return c
	}
	if err := r.Register(c); err != nil {
		var already prometheus.AlreadyRegisteredError
		if errors.As(err, &already) {
			if existing, ok := already.ExistingCollector.(C); ok {
				return existing
			}
		}
	}
	return c
}

// peerMetrics are a PeerTransport's.
type peerMetrics struct {
	classes                              [classes]*linkCounters
	received                             prometheus.Counter
	sendingSnapshots, receivingSnapshots prometheus.Gauge
	sentSnapshots, failedSnapshots       prometheus.Counter
	receivedSnapshots, snapshotBytes     prometheus.Counter
}

// linkCounters are those of all links of a class.
type linkCounters struct{ messages, bytes, dropped, streams prometheus.Counter }

func newPeerMetrics(r prometheus.Registerer, realm string) *peerMetrics {
	counter := func(name, help string, labels prometheus.Labels) prometheus.Counter {
		labels["realm"] = realm
		return register(r, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}))
	}
	gauge := func(name, help string) prometheus.Gauge {
		return register(r, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: prometheus.Labels{"realm": realm}}))
	}
	m := &peerMetrics{
		received:           counter("tidemark_rpc_peer_received_messages_total", "Raft messages received from peers.", prometheus.Labels{}),
		sendingSnapshots:   gauge("tidemark_rpc_sending_snapshots", "Snapshots being sent."),
		receivingSnapshots: gauge("tidemark_rpc_receiving_snapshots", "Snapshots being received."),
		sentSnapshots:      counter("tidemark_rpc_sent_snapshots_total", "Snapshots sent and accepted.", prometheus.Labels{}),
		failedSnapshots:    counter("tidemark_rpc_failed_snapshots_total", "Snapshots that could not be sent, or were refused.", prometheus.Labels{}),
		receivedSnapshots:  counter("tidemark_rpc_received_snapshots_total", "Snapshots received and accepted.", prometheus.Labels{}),
		snapshotBytes:      counter("tidemark_rpc_sent_snapshot_bytes_total", "Bytes of snapshots sent.", prometheus.Labels{}),
	}
	for c := range classes {
		labels := func() prometheus.Labels { return prometheus.Labels{"class": c.String()} }
		m.classes[c] = &linkCounters{
			messages: counter("tidemark_rpc_peer_sent_messages_total", "Raft messages queued to be sent to peers.", labels()),
			bytes:    counter("tidemark_rpc_peer_sent_bytes_total", "Bytes of Raft messages queued to be sent to peers.", labels()),
			dropped:  counter("tidemark_rpc_peer_dropped_messages_total", "Raft messages to peers that were dropped: queue full, or peer unreachable.", labels()),
			streams:  counter("tidemark_rpc_peer_streams_total", "Streams to peers that were opened.", labels()),
		}
	}
	return m
}

func (m *peerMetrics) class(c Class) *linkCounters { return m.classes[c] }
