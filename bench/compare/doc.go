// Command compare measures Tidemark beside a three-member etcd on the same machine in the same run.
//
// One repetition starts both stores anew in fresh directories, as separate processes on loopback
// ports, loads the same records into each, and goes through the cases; within a case the subjects
// (etcd, and Tidemark with each number of hash partitions) take turns, in an order that changes
// from repetition to repetition. Before a measurement begins the servers must have come to rest, so
// that one subject's compactions are not charged to the next. Both stores sync every write; both
// get the client set-up that serves them best: etcd 8 connections, all to its leader, and Tidemark
// its SDK, in a process of its own: the `tidemark bench` of the measured binary.
//
// With -beside an older binary of Tidemark is measured as well, and with -tls each binary also with
// mutual TLS, with certificates that the program makes. They take turns in the same run, next to
// each other, and the report gives the ratio of each figure in pairs (beside.go). Each binary is
// driven by its own `tidemark bench`: the client is a half of what is compared, and two versions
// need not understand each other.
//
// Beside latency and throughput, which package bench measures, each measurement has the processor
// seconds that the servers and the clients' process used meanwhile, per 1,000 operations. The
// limits of the machine (a gRPC echo, a synced Pebble commit, fdatasync) are measured in every
// repetition too: a ratio between two stores says more with them.
//
// The report gives medians over the repetitions, with the lowest and the highest, and sets the
// ratios against the goals of the project (goals.go). It is Markdown, and JSON with -json; with
// -out it is also added to a page of results, such as docs/results/etcd.md.
//
// Besides the recipes of kv/coord this is the only package of the project that imports etcd's
// client.
package main
