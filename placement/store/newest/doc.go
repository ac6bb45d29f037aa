// Package newest caches the newest versions of keys, so that a write need not read the previous
// version from the database.
//
// It has two structures. A cache has the newest versions of the keys that were written or read
// last, in two generations of bounded size. A filter (Bloom, Communications of the ACM 13(7), 1970,
// in blocks of a cache line) has all keys that exist: a key that it does not have is not in the
// database. Most writes are of recently written keys, or of new keys; other writes read the
// database.
//
//	Get ──► cache ──► filter ──► not known: the caller reads, and calls Read
//	          ▲          ▲
//	Wrote ────┴──────────┤
//	                     │
//	Fill ── a scan ──────┘ in pieces, beside the writes; before its end the filter says nothing
//
// INVARIANT: a version that Get returns is the newest one, and a key that Get calls absent has no
// version, or a deletion for the newest one. For this, Wrote must be called for each write before
// the next Get, and Reset when the database was changed by other means.
//
// A filter only grows: deleted keys stay in it, which only costs reads. When the number of its keys
// has reached half of its capacity, a new filter is filled by another scan. A scan that meets more
// keys than half of its filter's capacity is given up, and begins again with a filter eight times
// as large; so all filters before the last together cost at most a seventh of the last scan.
//
// The package does no I/O.
package newest
