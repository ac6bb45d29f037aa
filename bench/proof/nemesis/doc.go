// Command nemesis runs a cluster of separate processes, causes faults by a random schedule from a
// seed, and checks the answers that clients got: `make nemesis MINUTES=10 SEED=1`.
//
// The cluster has three core servers and five data nodes. If the user is root, each has a network
// namespace and a small disk of its own (package links describes the alternative). The traffic and
// its checks are those of package proof. Besides, probes write and read one key of every partition
// all the time. The pauses of the probes' answers measure the availability under each fault
// (package availability). A table of the pauses is printed at the end.
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
// A broken promise to a client; an operation that fails in calm (package calm); a process that ends
// by itself; replicas that differ at the same applied index; a failed replica; a core without the
// members that it should have; a cluster without faults that does not serve again. The directory of
// the run is then kept, with the schedule, the history, the report and the logs of the servers, and
// the exit code is 1. A pause that is longer than the faults explain is a finding. It is reported,
// and does not fail the run, because the machine may have been slow.
//
// The package does not retry failed operations, and asserts no timing.
package main
