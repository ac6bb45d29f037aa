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
// last (near.go). A replica that has refused is left alone for a while, or as long as it can be
// told that it lacks what a read needs (left_alone.go). Clock.Seen is what such a read has to be at
// or above, to see what this sender has written and read (package clock).
//
// # Suspected nodes
//
// Package nodes has the connections to nodes. It suspects a node when the node's connection breaks,
// or when nothing comes from the node for a second while requests wait for it. A suspected node
// gets pings and no requests until it answers.
//
// # The table
//
// One goroutine follows Cluster.FollowTable of any server that answers, and moves to another one
// when the stream ends. The first part of a stream is gathered aside and replaces the table at
// once; a server that lags behind what is known already is read on until it has caught up. The
// table has all nodes and keyspaces. Of the partitions it has those of keyspaces that a subscriber
// needs (Subscribe): the stream asks for more when there are more. It shows the client's token, and
// each later one: while authentication is enabled, the server sends of a keyspace to which the user
// has no right one partition that stands for all (Partition.Boundless). Requests go to it as to any
// other, and the node refuses them. From a server of an earlier version the whole table comes
// (Cluster.WatchTable).
//
// A Table shares with the one before what did not change: keyspaces, and the partitions of each,
// lie in persistent trees (package tree). The way to a key is its hash number, in a hash keyspace,
// and then the key itself: a number may have several partitions. layout.go says which partitions
// are shown where descriptors overlap. No news make a hole.
//
// INVARIANT: a published Table, its Keyspaces and Partitions never change; leader hints hang off
// them and are atomic.
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
