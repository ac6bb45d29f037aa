// Package proof has workloads that prove or disprove what Tidemark promises its clients: each is a kind of traffic together
// with the check of what came of it. The same workloads serve a simulated cluster in virtual time and real processes.
//
// # How a run goes
//
// Whoever runs workloads makes a Run, lets every Workload make what it needs (Setup), then calls Drive once for each of its
// clients, from goroutines of its own, while faults happen to the cluster. When the time is over it cancels the Drives'
// context, heals everything, waits for the Drives, and calls Check. What was found is in the Run (Violations), and in the
// histories of single keys (Run.History), which the caller checks.
//
// # Rules for workloads
//
//   - Every value is written once, so that whoever reads it knows who wrote it.
//   - An error is no violation: faults make errors. A wrong answer is one. ErrOutcomeUnknown means either; every other
//     error of a write promises that it never took effect, and the check relies on it.
//   - A workload may not know whether time is real or virtual. It waits with Run.Rest and with contexts.
//   - Its memory does not grow with the length of the run.
//
// The package starts no goroutines. It must not import the packages of any server, nor kv/kvtest.
package proof
