// Package monitoring holds what a Prometheus and a Grafana need to watch a Tidemark cluster: the
// metrics that are looked at, dashboards, and alert rules. All of it is data in Go; the files that
// Prometheus and Grafana read are generated from it:
//
//	metrics.go          the metrics that dashboards and rules use, with their labels
//	alerts_*.go         the alert rules, a file for each group
//	overview.go ...     the dashboards, a file for each
//
//	dashboards/*.json          for Grafana: one dashboard each
//	rules/tidemark.rules.yaml  for Prometheus: rule_files
//
// `go run ./deploy/monitoring/generate` (`make monitoring`) writes the files; a test says when they
// are old. Another test starts a cluster and sees that it exports each metric, with the labels that
// are used. rules/tidemark.rules.test.yaml has cases for promtool in which each alert fires, and
// does not (`make monitoring-check`). check.sh (`make monitoring-demo`) asks a real Prometheus,
// which scrapes a cluster under load, every query of every panel. docs/runbook.md has an entry for
// each alert.
//
// The rules expect that a cluster is one scrape job of Prometheus, whose name contains "tidemark",
// and a server one instance of it. A cluster that runs in one process (tidemark demo) is one
// instance; its servers differ by the label "server", which others do not have.
//
// The package imports nothing of Tidemark.
package monitoring
