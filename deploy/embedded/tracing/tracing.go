// Package tracing exports the traces of a server by OTLP, over gRPC or HTTP. A Provider has a
// limited queue: if the queue is full, spans are dropped, so that no request waits for a collector.
// The environment variables OTEL_EXPORTER_OTLP_* have the meanings of the OpenTelemetry
// specification (protocol, headers, certificate, compression, timeout). A configured endpoint takes
// precedence over the environment.
package tracing

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"
)

// Config says where traces are sent.
type Config struct {
	// Endpoint is the URL of a collector, such as http://localhost:4317. The scheme http means no TLS.
	// If it is empty, the endpoint of the environment is used. Without both, nothing is exported.
	Endpoint string
	// Getenv returns variables of the environment.
	Getenv func(string) string
	// Server is the address of the server, and Version the version of the program. Both are sent to
	// the collector.
	Server, Version string
}

const (
	// queued limits the number of spans that wait to be sent.
	queued = 4096
	// closeTimeout bounds how long Close waits for the collector.
	closeTimeout = 3 * time.Second
)

// Provider provides tracers. All of their spans are exported: the callers choose which spans they
// create.
type Provider struct{ *trace.TracerProvider }

// endpoint returns the URL to which traces are sent. It is "" if there is none.
func (c *Config) endpoint() string {
	return cmp.Or(c.Endpoint, c.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
		c.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
}

// New makes a Provider. It returns nil if there is no endpoint. It does not wait for the collector.
// Close the Provider after use.
func New(ctx context.Context, c Config) (*Provider, error) {
	endpoint := c.endpoint()
	if endpoint == "" {
		return nil, nil
	}
	if !strings.HasPrefix(endpoint, "http://") && !strings.HasPrefix(endpoint, "https://") {
		return nil, fmt.Errorf("the endpoint of traces %q is no URL: write http://HOST:PORT, or "+
			"https:// for TLS", endpoint)
	}
	exporter, err := c.exporter(ctx, endpoint)
	if err != nil {
		return nil, fmt.Errorf("exporting traces to %s: %w", endpoint, err)
	}
	return &Provider{trace.NewTracerProvider(trace.WithSampler(trace.AlwaysSample()),
		trace.WithBatcher(exporter, trace.WithMaxQueueSize(queued)),
		trace.WithResource(resource.NewSchemaless(attribute.String("service.name", "tidemark"),
			attribute.String("service.version", c.Version),
			attribute.String("service.instance.id", c.Server))))}, nil
}

// exporter makes the exporter for the protocol that the environment names; by default gRPC.
func (c *Config) exporter(ctx context.Context, endpoint string) (trace.SpanExporter, error) {
	switch protocol := cmp.Or(c.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"),
		c.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), "grpc"); protocol {
	case "grpc":
		return otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(endpoint))
	case "http/protobuf":
		var options []otlptracehttp.Option
		if c.Endpoint != "" {
			if u, err := url.Parse(endpoint); err == nil && strings.Trim(u.Path, "/") == "" {
				endpoint = u.JoinPath("v1/traces").String()
			}
			options = append(options, otlptracehttp.WithEndpointURL(endpoint))
		} // the endpoint of the environment may be one for all signals, to which a path is added
		return otlptracehttp.New(ctx, options...)
	default:
		return nil, fmt.Errorf("the protocol of traces %q is not known: OTEL_EXPORTER_OTLP_PROTOCOL is "+
			"grpc or http/protobuf", protocol)
	}
}

// Tracers returns the provider in the form for servers. It returns nil if there is none.
func (p *Provider) Tracers() oteltrace.TracerProvider {
	if p == nil {
		return nil
	}
	return p.TracerProvider
}

// Close sends the waiting spans, within some seconds.
func (p *Provider) Close() {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = p.Shutdown(ctx) // if the collector is gone, its traces are lost
}
