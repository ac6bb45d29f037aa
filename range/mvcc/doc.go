// Package mvcc writes versions of keys, and reads a key, or a span of keys, as of a timestamp.
//
// It consists of pure functions over an engine.Reader and an engine.StateBatch, without partitions,
// leases or requests. All keys in its API are internal keys (package keys); timestamps are hlc's.
//
// A version is one key of the state database: the internal key's data key with the timestamp
// appended. Versions of a key sort newest first, so that a read as of t is one seek to (key, t).
// The stored value is a header (see Header) followed by the version's value. A deletion is a
// version too, a tombstone, which garbage collection removes. A value may have an expiry (see
// expiry.go).
//
// INVARIANT: versions are written once and never changed; only garbage collection (Garbage) removes
// them, below its threshold.
//
// INVARIANT: a header that does not decode, and a key in the data table that is not a version, is
// ErrCorrupt and names the key. It is never skipped and never served.
//
// Cost: a point read is one prefix seek, which bloom filters serve. A scan steps from key to key;
// at a key with many versions it steps a few times and then seeks, in both directions. So its cost
// depends on the number of keys, not of versions. Deleted keys cost as much as others until garbage
// collection removes them, unless the scan has a memory of vacant spans (package vacant): then it
// walks over a long run of deleted keys once, and later scans pass the run with one seek.
package mvcc
