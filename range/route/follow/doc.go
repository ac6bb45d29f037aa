// Package follow keeps the table of a sender of requests up to date, and knows which servers can be
// asked.
//
// One goroutine follows Cluster.FollowTable of any server that answers, and moves to another one
// when the stream ends. The first part of a stream is gathered aside and replaces the table at
// once; a server that lags behind what is known already is read on until it has caught up. The
// table has all nodes and keyspaces. Of the partitions it has those of keyspaces that a subscriber
// needs (Subscribe): the stream asks for more when there are more. It shows the client's token, and
// each later one: while authentication is enabled, the server sends of a keyspace to which the user
// has no right one partition that stands for all (Partition.Boundless). From a server of an earlier
// version the whole table comes (Cluster.WatchTable).
//
// While there is no table, the package remembers what each server said, so that a caller whose time
// is up learns why (reach.go).
//
// INVARIANT: a table that is on its way is never given up for a fresh one.
//
// The package must not import the sender.
package follow
