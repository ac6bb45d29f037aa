package etcdmetrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// Calls counts the calls of the etcd API by gRPC and on connections of requests. Safe for
// concurrent use. A nil Calls counts nothing.
type Calls struct {
	started, received, sent, handled *prometheus.CounterVec
	seconds                          *prometheus.HistogramVec
}

// NewCalls makes a Calls with metrics in a registry.
func NewCalls(r prometheus.Registerer) *Calls {
	labels := []string{"grpc_type", "grpc_service", "grpc_method"}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "grpc_server_" + name + "_total",
			Help: help}, labels)
	}
	c := &Calls{
		started:  counter("started", "Calls that have begun.", labels...),
		received: counter("msg_received", "Messages received of streams and calls.", labels...),
		sent:     counter("msg_sent", "Messages sent of streams and calls.", labels...),
		handled: counter("handled", "Calls that have ended, whether they succeeded or not.",
			append(labels, "grpc_code")...),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "grpc_server_handling_seconds", Help: "How long calls with one request and one answer " +
				"have taken.", Buckets: prometheus.DefBuckets}, labels),
	}
	r.MustRegister(c.started, c.received, c.sent, c.handled, c.seconds)
	return c
}

// Method holds the metrics of one method.
type Method struct {
	calls                   *Calls
	labels                  []string
	started, received, sent prometheus.Counter
	seconds                 prometheus.Observer
}

// Method makes the metrics of a method, which show 0 until it is called.
func (c *Calls) Method(service, name string, d *grpc.StreamDesc) *Method {
	if c == nil {
		return nil
	}
	kind := "unary"
	switch {
	case d == nil:
	case d.ClientStreams && d.ServerStreams:
		kind = "bidi_stream"
	case d.ServerStreams:
		kind = "server_stream"
	default:
		kind = "client_stream"
	}
	m := &Method{calls: c, labels: []string{kind, service, name}}
	m.started = c.started.WithLabelValues(m.labels...)
	m.received = c.received.WithLabelValues(m.labels...)
	m.sent = c.sent.WithLabelValues(m.labels...)
	if d == nil {
		m.seconds = c.seconds.WithLabelValues(m.labels...)
	}
	c.handled.WithLabelValues(append(m.labels, "OK")...)
	return m
}

// Begin counts a call, and returns a function to call with its error at its end.
func (m *Method) Begin() (end func(error)) {
	if m == nil {
		return func(error) {}
	}
	m.started.Inc()
	began := time.Now()
	return func(err error) {
		code := status.Code(err)
		if err != nil {
			if _, ok := status.FromError(err); !ok {
				code = status.FromContextError(err).Code()
			}
		}
		m.calls.handled.WithLabelValues(append(m.labels[:3:3], code.String())...).Inc()
		if m.seconds != nil {
			m.received.Inc()
			if err == nil {
				m.sent.Inc()
			}
			m.seconds.Observe(time.Since(began).Seconds())
		}
	}
}

// Stream returns a stream with a context whose messages are counted. With a nil Method nothing is
// counted.
func (m *Method) Stream(ctx context.Context, s grpc.ServerStream) grpc.ServerStream {
	return &stream{s, ctx, m}
}

type stream struct {
	grpc.ServerStream
	ctx    context.Context
	method *Method // nil: nothing is counted
}

// Context implements grpc.ServerStream.
func (s *stream) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream.
func (s *stream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil && s.method != nil {
		s.method.received.Inc()
	}
	return err
}

// SendMsg implements grpc.ServerStream.
func (s *stream) SendMsg(m any) error {
	err := s.ServerStream.SendMsg(m)
	if err == nil && s.method != nil {
		s.method.sent.Inc()
	}
	return err
}
