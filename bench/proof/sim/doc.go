// Package sim runs workloads against a cluster in virtual time, while a schedule of faults, drawn
// from a seed, breaks the cluster. Then it checks the answers that the clients got, and the state
// of the replicas.
//
// # How a run goes
//
// Draw makes the Schedule of a seed: a list of Faults. Each Fault is a plain value with its times
// and parameters, and can be written as text and parsed. Run is called inside a testing/synctest
// bubble. It starts the seed's cluster (kv/kvtest), and lets the seed's workloads
// (bench/proof/workloads) create their keyspaces. Then the clients of the workloads and the
// schedule run at the same time. When the time is over, everything is healed and started again. The
// clients work for a while in calm, in which nothing may fail, and end. Then the checks come:
//
//   - every workload checks its data through a client, within 90 s, because a cluster that is whole
//     must serve;
//   - no server and no replica has failed, unless a fault explains the failure;
//   - all replicas of each partition reach the same applied index, and have the same checksum at
//     that index (DESIGN invariant 2);
//   - gauges of queues and waiting requests are within their limits, and at their values at rest
//     when nothing is under way;
//   - the number of goroutines is within the limit for a cluster of this size.
//
// The histories of single keys are returned, and checked outside of the bubble, where the checker
// takes real time.
//
// # What is where
//
//   - fault.go: faults, and their text; fault_*.go: the kinds of faults
//   - weather.go: how long the effects of each kind of fault last
//   - themes.go: faults that happen together
//   - shape.go: the other decisions of a seed
//   - schedule.go: the schedule; shrink.go: making a schedule smaller
//
// To add a kind of fault, add a file: docs/contributing.md shows how.
//
// A seed repeats the cluster, the workloads and the schedule. It also repeats the random choices of
// servers, clients and Raft as long as they are made in the same order. A seed does not repeat the
// order in which Go runs goroutines that are runnable at the same virtual moment. docs/testing.md
// says what to do with a seed that failed.
package sim
