// Package nodes manages the life of data nodes, on the core's leader (Nodes): they register, stay
// alive by heartbeats, fall silent, are drained, are decommissioned, or are given up by a recovery.
//
// Records of nodes are in the core's store (package meta). A node is alive while its alive key
// exists. The key is attached to a lease of the store, which heartbeats renew without a write. The
// reports of nodes go to package reports. Nodes has no mutable state, and needs no lock: calls that
// read, decide and write hold the turn of meta.Records.
package nodes
