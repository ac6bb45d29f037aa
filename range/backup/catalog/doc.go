// Package catalog reads a target without a cluster. It lists the backups, reads their manifests,
// reads the records of a keyspace from a chain of backups, and verifies that all objects are as
// they were written.
//
// A chain is read as layers, the latest layer first. The value of a row at the moment of the
// chain's last backup is the version in the latest layer that has a version of the row. Records
// merges the layers row by row. For each layer it holds at most two pieces in memory: the piece
// that is being read, and the piece before, whose memory the next piece will use.
package catalog
