// Package prom shows metrics of package metric to Prometheus.
package prom
