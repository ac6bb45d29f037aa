// Package metric counts what programs that embed the SDK, and the server, want to know of the wire,
// without a dependency on a monitoring library: a Counter, a Gauge, a Vec of counters by one label.
//
// Something that counts registers its collectors with a Registry, which its user supplies, and
// takes them out when it closes. Package prom below it makes a Registry of a Prometheus registerer.
//
// Values may be changed and read from any goroutine. The package imports nothing of Tidemark.
package metric
