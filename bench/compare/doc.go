// Command compare measures Tidemark and a three-member etcd on the same machine in the same run.
//
// One repetition starts both stores in fresh directories, as separate processes on loopback ports,
// loads the same records into each, and runs the cases. Within a case the subjects (etcd, and
// Tidemark with each number of hash partitions) take turns, in an order that changes from
// repetition to repetition. Before a measurement begins, the servers must be at rest, so that one
// subject's compactions do not affect the next one. Both stores sync every write. Both get the best
// client set-up for them: etcd has 8 connections, all to its leader, and Tidemark has its SDK, in a
// separate process: the `tidemark bench` of the measured binary.
//
// With -beside, an older binary of Tidemark is measured as well. With -tls, each binary is also
// measured with mutual TLS, with certificates that the program makes. They take turns in the same
// run, next to each other, and the report has the ratio of each figure in pairs (beside.go). Each
// binary has its own `tidemark bench` as the client: the client is a part of what is compared, and
// two versions may not understand each other.
//
// In addition to latency and throughput, which package bench measures, each measurement has the
// processor seconds of the servers and of the clients' process, per 1,000 operations. The limits of
// the machine (a gRPC echo, a synced Pebble commit, fdatasync) are measured in every repetition
// too. They help to interpret a ratio between two stores.
//
// The report has medians over the repetitions, with the lowest and the highest values, and compares
// the ratios with the goals of the project (goals.go). It is Markdown, and JSON with -json. With
// -out it is also added to a page of results, such as docs/results/etcd.md.
package main
