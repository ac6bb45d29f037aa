// Package mvcc is versions of keys: how one is written, and how a key, or a span of keys, is read
// as of a timestamp.
//
// It is pure functions over an engine.Reader and an engine.StateBatch. It knows nothing of
// partitions, leases or requests' meaning. All keys in its API are internal keys (package keys);
// timestamps are hlc's.
//
// A version is one key of the state database: the internal key's data key with the timestamp
// appended. Versions of a key sort newest first, so that a read as of t is one seek to (key, t).
// What stands there is a header (see Header) and the value. A deletion is a version too, a
// tombstone; it goes away by garbage collection. A value may have an expiry (see expiry.go).
//
// INVARIANT: versions are written once and never changed; they go only by Garbage, below its
// threshold.
//
// INVARIANT: a header that does not decode, and a key in the data table that is not a version, is
// ErrCorrupt and names the key. It is never skipped and never served.
//
// Cost: a point read is one prefix seek, which bloom filters serve. A scan steps from key to key;
// where a key has many versions it steps a few times and then seeks, in both directions, so that it
// depends on the number of keys and not on that of versions. Deleted keys count until garbage
// collection has removed them, unless the scan is given a memory of vacant spans (package vacant):
// then many of them in a row are walked over once, and passed over with one seek afterwards.
package mvcc
