// Package manifest says what a backup consists of: its plan, the objects that have been written for
// it, and the chain of backups that a restore reads. It is pure: it reads and writes no object, and
// knows no cluster.
//
// # Objects of a backup
//
// All objects of a backup lie below backup/ID/ in the target (names.go):
//
//   - plan: the Plan. It exists before anything else does, and never changes.
//   - unit/N: the Done of unit N of the plan. The first worker that finishes the unit creates it.
//   - piece/...: archives of records, named by a Done or by the Manifest.
//   - manifest: the Manifest. A backup without one is not complete.
//   - head: the Head, which names no key. It is what a list of backups shows.
//
// The objects of a log are its LogHead, below log/head/; a Round for each round, below
// log/round/ID/, under the moment after which it begins; and what the rounds describe, below
// log/data/ID/. A Round is created once and never changes. Data that no Round names is left over.
// Data exists only while the head does.
//
// Pieces that no Done names are left over from workers that were stopped, or were overtaken.
// To delete a backup is to delete all objects below its prefix.
//
// # Rows
//
// A row is a key as a backup has it: the user key in a range keyspace; the hash number in two
// bytes, big-endian, and the user key in a hash keyspace. Rows of a keyspace are ordered as bytes,
// so that units and pieces are spans of rows for either kind of keyspace.
//
// # Chains
//
// A full backup has all that could be read at Head.At. An incremental backup has, for each
// keyspace, all versions in (Keyspace.After, Head.At], where After is the At of its parent, or zero
// for a keyspace that the parent does not have. So a chain of a full backup and its incremental
// ones has all that could be read at the At of the last one. Chain checks that.
//
// # Logs
//
// A log has all changes of a cluster from a moment on, in rounds of some seconds: each has all
// versions in (Round.After, Round.At], and the next one begins where it ends. A backup and the
// rounds from its At on have what could be read at any later moment up to the end of the log: that
// is a Point.
package manifest
