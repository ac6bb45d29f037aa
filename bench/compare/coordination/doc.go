// Command coordination measures Tidemark's coordination service and an etcd with the same number of
// members, on the same machine, in the same run, with the same client: etcd's own client for Go.
//
// Both are three processes on loopback ports that sync every write. Subjects take turns within a
// case, and their order changes from repetition to repetition. The client opens 8 connections, or
// the number of -connections, all to the leader, which is the best for etcd. The cases are puts of
// 256 bytes and linearisable gets by 1, 64 and 256 clients; one writer with 10,000 watchers of its
// key, which writes as many events as get through; 10,000 leases that are kept alive; and memory
// with a million keys.
//
// With -ceiling, puts and gets are also measured with a gRPC server that does nothing. The client
// cannot reach more with any server on the machine.
//
// In addition to throughput and latency, each figure has the processor seconds of the servers.
package main
