// Package metric counts events of the wire, for programs that embed the SDK and for the server,
// without a dependency on a monitoring library: a Counter, a Gauge, and a Vec of counters with one
// label.
//
// A user of the package registers its collectors with a Registry, which its own caller supplies,
// and unregisters them when it closes. Package prom makes a Registry from a Prometheus registerer.
//
// Values may be changed and read from any goroutine. The package imports nothing of Tidemark.
package metric
