// Package workloads has the traffic that tests what Tidemark promises its clients. Each workload is
// a kind of traffic together with the check of its results. The same workloads run against a
// simulated cluster in virtual time, and against real processes.
//
// Package driver says how a run goes, and which rules a workload keeps. Each workload has its own
// file. standard.go lists the workloads of the usual runs.
//
// The package starts no goroutines. It must not import the packages of any server, nor kv/kvtest.
package workloads
