// Package sim runs workloads against a cluster in virtual time while a schedule of faults, drawn from a seed, happens to
// it; and checks what the clients were told and what the replicas hold.
//
// # How a run goes
//
// Run is called inside a testing/synctest bubble. It starts a cluster (kv/kvtest), lets every Workload make its keyspace,
// and then starts two things beside each other: the workloads' clients, and the schedule, which is a list of faults with the
// virtual times at which they begin and end. When the time is over everything is healed and started again, the clients
// end, and the checks come:
//
//   - every workload looks at what is there, through a client, within a minute: a cluster that is whole must serve;
//   - no server and no replica has failed;
//   - all replicas of each partition come to the same applied index, and have the same checksum at it (DESIGN invariant 2);
//   - the goroutines are as many as they were after the start, give or take what a cluster of this size may have.
//
// The histories of single keys are returned and checked outside of the bubble, where the checker's time is real.
//
// # Extending it
//
// A Workload is a file here with the interface's four methods; a fault is an entry of the table in faults.go with a function that
// makes it happen and one that ends it. Both draw what is random from the *rand.Rand they are given, so that a seed stands
// for a schedule.
//
// What a seed repeats: cluster, workloads, faults and their times, the servers' and clients' random choices. What it does
// not: the order in which Go runs goroutines that are runnable at the same virtual moment, and Raft's election timeouts,
// which that library draws by itself. docs/testing.md says what to do with a seed that failed.
package sim
