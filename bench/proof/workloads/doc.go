// Package workloads has the traffic that proves or disproves what Tidemark promises its clients:
// each workload is a kind of traffic together with the check of what came of it. The same workloads
// serve a simulated cluster in virtual time and real processes.
//
// Package driver says how a run goes and which rules a workload keeps. A workload lies in a file of
// its own; standard.go names those of the usual runs.
//
// The package starts no goroutines. It must not import the packages of any server, nor kv/kvtest.
package workloads
