// Package disks is the part of a data node that reacts to its disks.
//
// Followers do better than a leader whose log cannot be written, or which refuses writes because it
// has no room. So when the current write of its log takes longer than an election timeout, or when
// a disk has become full, Disks hands over what the node leads, to replicas on nodes that do not
// report the same in their pings, and leaves elections to them. The Flusher flushes the state when
// much of it is not durable.
package disks
