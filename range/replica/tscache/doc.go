// Package tscache is the timestamp cache of a partition's leader: it remembers at which timestamps
// keys were read, so that no write goes below a read that was served.
//
// # How it remembers
//
// Reads of single keys fall into a table of slots by the hash of the key. A slot keeps the highest
// timestamp of all keys that fall into it. A key that shares its slot with a key that was read
// later is written at a slightly higher timestamp than necessary, which costs nothing. In return no
// key is stored, nothing is evicted, and the table never overflows. The table starts with 64 slots
// at the first read and doubles up to its limit. The alternative, two rotating generations of a map
// from key to timestamp, takes ten times the memory and time, and needs a low-water mark when the
// maps overflow all the same.
//
// Reads of spans are kept in a bounded list. When the list is full, its lowest read goes into the
// low-water mark: a timestamp at which every key counts as read.
//
// Most lookups end at the maximum of the cache: a write gets its timestamp from the clock, and the
// clock is above the timestamps of most reads.
//
// # Invariants
//
//   - The cache may answer too high, never too low: Above returns a timestamp above every read of
//     the key that was recorded since the last Reset, and above the low-water mark of that Reset.
//   - Max is at or above everything that was recorded since the last Reset.
//
// # Locks
//
// A Cache has no lock. Its owner guards it by the lock under which the owner chooses timestamps of
// writes: for any write and any read of the same key, one of the two must know of the other.
//
// # Imports
//
// hlc and range/keys. Nothing of range/replica.
package tscache
