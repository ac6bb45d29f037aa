// Package kvprom shows the metrics of the SDK to Prometheus. Programs that do not want them need
// not link Prometheus.
package kvprom
