// Package conn has the connection of a client to its cluster: what the packages of the SDK share
// below the words that users write.
//
// A Conn routes requests (route.Sender), commits transactions (committer.Committer), finds
// keyspaces in the partition table, and knows the time of the cluster. Its errors are those of the
// router, of the committer and of gRPC; Conn.Wrap makes the errors of package kv of them.
//
// Package kv opens a Conn for each Client. Packages beside kv, such as kv/admin, get the Conn of a
// Client with Of.
package conn
