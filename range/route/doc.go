// Package route is the sender's side of the data protocol: it knows which partition holds a key,
// which node leads that partition, and how to bring a request to it through every failure that
// passes.
//
// # How a request travels
//
// Sender.Do looks the key up in the current Table (an immutable snapshot behind an atomic pointer),
// takes the leader hint of the partition, and hands the request to the batch stream of that node.
// That is all there is to it when nothing is wrong: no lock, no goroutine and no timer belong to a
// single request. What comes back decides the rest:
//
//   - Not the leader, another epoch, no such partition: the answer carries what the node knows
//     better, of a partition that has split all that has become of it. The cache is corrected, and
//     the request goes again at once the first time, then with a short backoff.
//   - Overloaded, no quorum, node unhealthy: again after a longer backoff.
//   - The stream broke: the node is suspected, all hints that name it are dropped, and the request
//     goes elsewhere. A write that may have been executed is repeated with the same sequence and
//     session; the servers apply it at most once.
//   - Anything else is returned as an *Error.
//
// Every class of failure has its own Backoff, and all of them go on until the context ends.
//
// # Leaders
//
// Each partition has one hint: node and term. A hint never gives way to one of a lower term. Where
// no usable hint exists, one request at a time walks over the replicas with term 0 (which no
// replica executes as a write) while the others wait for what it finds; so the search for a leader
// costs one request per partition and backoff step, no matter how many callers wait.
//
// # The nearest replica
//
// Sender.DoNear brings a read to a replica that need not lead, at a timestamp that is closed there:
// the nearest one by zone, region and latency (nearness.go), then the others, and the leader at
// last (follower_read.go). A replica that has refused is left alone for a while, or as long as it
// can be told that it lacks what a read needs (package table). Clock.Seen is what such a read has
// to be at or above, to see what this sender has written and read (package clock).
//
// # Suspected nodes
//
// Package nodes has the connections to nodes. It suspects a node when the node's connection breaks,
// or when nothing comes from the node for a second while requests wait for it. A suspected node
// gets pings and no requests until it answers.
//
// # The table
//
// Package table has the table, the leader hints, and what is known of each replica. Package follow
// keeps the table up to date, by a stream from one server at a time. Of the partitions the table
// has those of keyspaces that a subscriber needs (Subscribe). A keyspace to which the user has no
// right has one partition that stands for all (Partition.Boundless). Requests go to it as to any
// other, and the node refuses them.
//
// INVARIANT: all attempts of one request carry the same sequence and session, go through the same
// lane (and so under the same client id), and a write carries a term other than 0 unless it is only
// meant to ask for the leader.
//
// INVARIANT: once an attempt of a write may have been executed, the request ends with a definite
// answer to that same sequence or with Error.OutcomeUnknown, never with an error that denies it.
// What became of a write of several keys whose partition has split, Sender.Executed asks.
//
// The package imports keys, hlc and rpc; never placement, txn or kv.
package route
