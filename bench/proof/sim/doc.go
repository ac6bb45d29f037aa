// Package sim runs workloads against a cluster in virtual time while a schedule of faults, drawn
// from a seed, happens to it; and checks what the clients were told and what the replicas hold.
//
// # How a run goes
//
// Draw makes the Schedule of a seed: a list of Faults, each a plain value with its times and
// parameters, which is text and can be read from text. Run is called inside a testing/synctest
// bubble. It starts the cluster (kv/kvtest) that the seed gives, lets its workloads
// (bench/proof/workloads) make their keyspaces, and then starts two things beside each other: the
// workloads' clients, and the schedule. When the time is over everything is healed and started
// again, the clients work for a while in calm, in which nothing may fail, and end; and the checks
// come:
//
//   - every workload looks at what is there, through a client, within a minute: a cluster that is
//     whole must serve;
//   - no server and no replica has failed that was not made to;
//   - all replicas of each partition come to the same applied index, and have the same checksum at
//     it (DESIGN invariant 2);
//   - gauges of what queues and waits are within their limits, and at rest when nothing is under
//     way;
//   - the goroutines are as many as a cluster of this size may have.
//
// The histories of single keys are returned and checked outside of the bubble, where the checker's
// time is real.
//
// # What is where
//
// fault.go has the values and their text, fault_*.go the kinds, weather.go for how long each is
// felt, themes.go what happens together, shape.go what else a seed decides, schedule.go the
// schedule, shrink.go what makes it smaller. To add a kind of fault is to add a file:
// docs/contributing.md shows how.
//
// What a seed repeats: cluster, workloads, schedule; and the random choices of servers, clients and
// Raft as far as they are asked for in the same order. What it does not: the order in which Go runs
// goroutines that are runnable at the same virtual moment. docs/testing.md says what to do with a
// seed that failed.
package sim
