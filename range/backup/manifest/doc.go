// Package manifest defines the parts of a backup: its plan, the objects that are written for it,
// and the chain of backups that a restore reads. The package is pure: it reads and writes no
// object, and does not talk to a cluster.
//
// # Objects of a backup
//
// All objects of a backup lie below backup/ID/ in the target (names.go):
//
//   - plan: the Plan. It exists before anything else does, and never changes.
//   - unit/N: the Done of unit N of the plan. The first worker that finishes the unit creates it.
//   - piece/...: archives of records, named by a Done or by the Manifest.
//   - manifest: the Manifest. A backup without one is not complete.
//   - head: the Head, which contains no key. Lists of backups show it.
//
// A log has a LogHead, below log/head/; a Round for each round, below log/round/ID/, named by the
// moment after which the round begins; and the data that the rounds name, below log/data/ID/. A
// Round is created once and never changes. Data that no Round names is left over from failed
// attempts. Data is removed before the head.
//
// Pieces that no Done names are left over from workers that were stopped or overtaken. A backup is
// deleted by deleting all objects below its prefix.
//
// # Rows
//
// A row is a key in the form that backups use. In a range keyspace it is the user key. In a hash
// keyspace it is the hash number in two bytes, big-endian, followed by the user key. Rows of a
// keyspace are ordered bytewise, so that units and pieces are spans of rows in both kinds of
// keyspaces.
//
// # Chains
//
// A full backup has everything that could be read at Head.At. An incremental backup has, for each
// keyspace, all versions in (Keyspace.After, Head.At]. Keyspace.After is the At of the parent, or
// zero for a keyspace that the parent does not have. So a chain of a full backup and its
// incremental backups has everything that could be read at the At of the last backup. Chain and
// Layers.Check verify this.
//
// # Logs
//
// A log has all changes of a cluster since a moment, in rounds of some seconds. Each round has all
// versions in (Round.After, Round.At], and the next round begins where it ends. A backup together
// with the rounds after its At can restore any later moment up to the end of the log. Such a moment
// is a Point.
package manifest
