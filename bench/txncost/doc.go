// Command txncost measures the costs of transactions, on its own clusters: make bench-txn. It runs
// the measurements in -what, one after the other:
//
//   - cost: all kinds of operations take turns, from one client, in another order in each round and
//     with a pause before each. So other load of the machine, and clean-up work after operations,
//     affect all of them equally. Medians are compared. Each of the three nodes is a process, as in
//     a real cluster. With -together all nodes are in the client's process. Then one profile shows
//     everything, but Go's scheduler makes them wait for each other although the machine has an
//     idle processor.
//   - wait: commits over two partitions, with and without commit wait, in turns, on a cluster whose
//     clocks differ by at most a millisecond. The nodes are processes as for cost.
//   - contention: how many increments of one counter 64 clients commit, compared with the number of
//     puts to one key, in turns; and how evenly clients are served when they move money between 100
//     accounts in 8 partitions. Each node is a process, and so are the clients.
//   - large: the latency of point reads of other keys while transactions of 64 MiB and 100,000 keys
//     commit, compared with an idle cluster, and the memory of the servers. Each node is a process,
//     and so are writer and reader. For comparison, the latency of the reads while goroutines
//     compute for as much processor time, in the servers and elsewhere.
//
// The report is Markdown. With -out it is also added to a page, such as
// docs/results/transactions.md.
package main
