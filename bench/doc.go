// Package bench measures a key-value store: it makes a workload, runs a Target with a fixed number
// of clients, and reports the results.
//
// How data flows. A Workload (put, get, scan, or YCSB a to f) draws operations from generators (key
// chooser, operation mix, value source). Each client has its own source of random numbers, derived
// from the seed. Run first loads the records. Then the clients work through a warm-up and a
// measured window. Each client is a closed loop: it sends its next operation when the one before
// has been answered. Each client has one histogram for each kind of operation. The histograms are
// merged only at the end, so that measuring costs two clock readings and one array increment.
//
// What is counted:
//   - latency: every operation that began inside the window, even if it ended after the window, so
//     that a stall at the end is visible;
//   - throughput: operations that succeeded inside the window, divided by the length of the window;
//   - errors: every failed operation, by class, in addition to the successes. A failed operation is
//     in no latency histogram.
//
// Transactions. RunTransactions runs a Transactor in the same way with one of three workloads:
// Mixed (any keys in any number of partitions), Bank and Counters. Bank and Counters check at the
// end whether the data is right. In addition to the latencies, the report has the attempts that had
// to run again, by reason, and how evenly the clients were served.
//
// A closed loop measures service time under a fixed number of callers. It sends less while the
// store stalls, so its percentiles are not those of a stream of arrivals at a fixed rate.
//
// The package knows no store: bench/kvtarget adapts the SDK, and a comparison has its own Target.
// The package must not import anything below kv.
package bench
