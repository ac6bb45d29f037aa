// Command nemesis runs a cluster of separate processes, breaks it in all the ways that servers
// break, by a random schedule from a seed, and checks what clients were told: `make nemesis
// MINUTES=10 SEED=1`.
//
// The cluster is three core servers and five data nodes, each with a network namespace and a small
// disk of its own where root can have them (package links says what else there is). The traffic and
// its checks are those of package proof, beside probes that write and read one key of every
// partition all the time. Whatever a fault does to the probes is its availability (package
// availability); a table of that is printed at the end.
//
// # Parts
//
//   - supervisor.go: the process that is started takes a lock, removes what an earlier run left,
//     runs itself once more as the harness, and tidies up after it however it ended.
//   - world.go: the cluster on its network, disks and clocks. schedule.go draws what happens when;
//     it is pure. kinds.go is the table of faults, faults_*.go what they do. run.go goes through
//     the schedule.
//   - calm.go: the rests in which nothing may fail.
//   - probe.go asks every partition, ways.go says how much time slow links add to that; judge.go
//     says which pauses a fault explains; watch.go looks for processes that end, lines of the logs
//     and metrics that must not be; replicas.go compares the replicas of the processes.
//   - slow_disk.go: a disk that stays slow, and the pace of writes beside it.
//   - report.go: what is printed and what is left in the directory.
//
// # What fails a run
//
// A broken promise to a client; an operation that fails in calm (package calm); a process that
// ends by itself; replicas that differ at the same applied index; a failed replica; a core without
// the members that it should have; a cluster that is whole again and does not serve again. The
// directory then stays, with the schedule, the history, the report and the logs of the servers,
// and the exit code is 1. A pause longer than the faults explain is a finding: it is reported, and
// does not fail the run, because it may be the machine that was slow.
//
// The package does not retry what failed, and asserts no timing.
package main
