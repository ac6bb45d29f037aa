// Package newest remembers the newest versions of keys, so that a write need not read the database
// for what was there before it.
//
// Two structures answer. A cache has the newest versions of the keys that were written or read
// last, in two generations of bounded size. A filter (Bloom, Communications of the ACM 13(7), 1970,
// in blocks of a cache line) has all keys that exist: what it does not have is not in the database.
// Most writes are of keys that were written a moment ago, or of keys that are new; the others read.
//
//	Get ──► cache ──► filter ──► not known: the caller reads, and says what it found
//	          ▲          ▲
//	Wrote ────┴──────────┤
//	                     │
//	Fill ── a scan ──────┘ in pieces, beside the writes; before its end the filter says nothing
//
// INVARIANT: a version that Get returns is the newest one, and a key that Get calls absent has no
// version, or a deletion for the newest one. It rests on this: each write is told with Wrote before
// the next Get, and Reset is called when the database was changed by other means.
//
// A filter only grows: keys that were deleted stay in it, which costs reads alone. When as many
// keys have come as half of what it was made for, a new one is filled by another scan. A scan that
// meets more keys than half of what its filter is made for is given up, and begins anew with a
// filter eight times as large; so the filters before the last cost a seventh of the last scan at
// most.
//
// The package does no I/O.
package newest
