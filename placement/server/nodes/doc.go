// Package nodes has the life of data nodes, as the core's leader sees it (Nodes): they register,
// stay alive by heartbeats, fall silent, are drained, decommissioned, or given up by a recovery.
//
// Records of nodes are in the core's store (package meta). A node is alive while a key under a
// lease of the store is there, which heartbeats renew without a write. What nodes report is handed
// to package reports. Nodes has no state that changes, and needs no lock: calls that read, decide
// and write hold the turn of meta.Records.
package nodes
