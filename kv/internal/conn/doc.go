// Package conn is the connection of a client to its cluster, which the packages of the SDK share.
//
// A Conn routes requests (route.Sender), commits transactions (committer.Committer), finds
// keyspaces in the partition table, and estimates the time of the cluster. Its errors are those of
// the router, of the committer and of gRPC; Conn.Wrap turns them into errors of package kv.
//
// Package kv opens a Conn for each Client. Packages beside kv, such as kv/admin, get the Conn of a
// Client with Of.
package conn
