// Command coordination measures Tidemark's coordination service beside an etcd of the same number
// of members, on the same machine, in the same run, with the same client: etcd's own for Go.
//
// Both are three processes on loopback ports that sync every write. Subjects take turns within a
// case, and their order changes from repetition to repetition. The client opens 8 connections, or
// as many as -connections says, all to the leader, which is what serves etcd best. The cases are
// puts of 256 bytes and linearisable gets by 1, 64 and 256 clients; one writer with 10,000 watchers
// of its key, as many events as get through; 10,000 leases that are kept alive; and memory with a
// million keys.
//
// With -ceiling puts and gets are also measured with a gRPC server that does nothing: what the
// client reaches with that is the most it can reach with any server on the machine.
//
// Beside throughput and latency each figure has the processor seconds of the servers.
package main
