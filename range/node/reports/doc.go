// Package reports tells the core about a data node: heartbeats renew the node's lease, and carry
// reports of the partitions that have changed enough.
//
// The lists of Reports are its own; the rest of a heartbeat comes from the node, its Self. Between
// two beats come urgent heartbeats, which report only what the core waits for. The lock of Reports
// is a leaf.
package reports
