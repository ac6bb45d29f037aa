// Package bench measures a key-value store: it makes a workload, drives a Target with a fixed
// number of clients, and reports.
//
// How data flows. A Workload (put, get, scan, or YCSB a to f) draws operations from generators (key
// chooser, operation mix, value source), one generator per client, each with its own random source
// derived from the seed. Run first loads the records, then lets the clients work through a warm-up
// and a measured window; each client is a closed loop: it sends its next operation when the one
// before has been answered. Each client owns one histogram per kind of operation and merges nothing
// until the end, so that measuring costs two clock readings and one array increment.
//
// What is counted:
//   - latency: every operation that began inside the window, also when it ended after it, so that a
//     stall at the end shows;
//   - throughput: operations that succeeded inside the window, over the window;
//   - errors: every failed operation, by class, beside the successes. A failed operation is in no
//     latency histogram.
//
// Transactions. RunTransactions drives a Transactor in the same way with one of three workloads:
// Mixed (any keys in any number of partitions), Bank and Counters, which look at the end whether
// what is there is right. Beside the latencies the report has the attempts that had to run again,
// by reason, and how evenly the clients were served.
//
// A closed loop measures service time under a fixed number of callers. It sends less while the
// store stalls, so its percentiles are not those of a stream of arrivals at a fixed rate.
//
// The package knows no store: bench/kvtarget adapts the SDK, and a comparison brings its own
// Target. It must not import anything below kv.
package bench
