// Package disks is what a data node does about its disks.
//
// A leader whose log cannot be written can do nothing that its followers could not do better, and
// one without room refuses writes. So Disks hand over what the node leads when the write of its log
// that is under way takes longer than an election timeout, or when a disk has become full, to
// replicas on nodes that do not say the same of themselves in their pings; and leave elections to
// them. The Flusher has the state flushed when much of it is not durable.
package disks
