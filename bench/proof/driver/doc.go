// Package driver drives workloads against a cluster, simulated or real, and judges the outcomes of
// their operations. Package workloads has the workloads.
//
// # How a run goes
//
// The caller makes a Run, and calls Setup of every Workload. Then the caller calls Drive once for
// each of a workload's clients, from goroutines of the caller, while faults happen to the cluster.
// When the time is over, the caller cancels the Drives' context, ends all faults, waits for the
// Drives, calls Check of each workload, and at last Run.Judge. The Run has the violations
// (Violations) and the outcomes of operations (Rows). The caller checks the histories of single
// keys (Run.History).
//
// # Rules for workloads
//
//   - Every value is written once, so that a reader of a value knows its writer.
//   - A wrong answer is a violation. ErrOutcomeUnknown means either; every other error of a write
//     promises that it never took effect, and the check relies on it.
//   - An error is a violation in calm, and none in a storm, when faults make errors (package calm).
//     A workload need not care: it works with a Client, which reports how every call ends, and the
//     Run judges it. What makes faults happen tells Run.Weather.
//   - A workload may not know whether time is real or virtual. It waits with Run.Rest and with
//     contexts.
//   - Its memory does not grow with the length of the run: Windows rotate what it uses.
//
// The package starts no goroutines. It must not import the packages of any server, nor kv/kvtest.
package driver
