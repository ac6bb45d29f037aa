// Package prom exports metrics of package metric to Prometheus.
package prom
