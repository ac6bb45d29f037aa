// Command txncost measures what transactions cost, on clusters of its own: make bench-txn. It does,
// one after the other, what -what names:
//
//   - cost: all kinds of operation take turns, in another order in each round and with a pause
//     before each, from one client: what the machine does besides, and what an operation leaves to
//     be cleared up, falls on all of them alike. What is compared are medians. Each of the three
//     nodes is a process, as in a real cluster; with -together all are in the client's, where one
//     profile shows everything, but where the language's scheduler has them wait for each other
//     while the machine has a processor to spare.
//   - wait: commits over two partitions, with commit wait and without, in turns, on a cluster whose
//     clocks are at most a millisecond off. The nodes are processes as for cost.
//   - contention: how many increments of one counter 64 clients commit, beside how many puts to one
//     key, in turns; and how they fare when they move money between 100 accounts in 8 partitions.
//     Each node is a process, and so are the clients.
//   - large: what point reads of other keys take while transactions of 64 MiB and 100,000 keys
//     commit, beside what they take on an idle cluster; and the memory of it. Each node is a
//     process, and so are writer and reader. For comparison, what the reads take beside goroutines
//     that just compute for as much processor time, in the servers and elsewhere.
//
// The report is Markdown; with -out it is also added to docs/results/transactions.md, say.
package main
