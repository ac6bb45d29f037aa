package newest

import (
	"bytes"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// Limits bound the memory.
type Limits struct {
	// GenerationBytes bounds the versions of one of the two generations. A version without its
	// value counts as some 160 bytes and its key.
	GenerationBytes int
	// VersionBytes bounds the size of a version that is kept with its value.
	VersionBytes int
	// MinKeys and MaxKeys are the capacities of the smallest and the largest filter, in keys. A
	// filter takes 1.25 bytes for each key.
	MinKeys, MaxKeys int
	// Misses is the number of reads of absent keys before a filter is made.
	Misses int
}

// DefaultBytes is the memory that DefaultLimits allow.
const DefaultBytes = 64 << 20

// DefaultLimits bound the memory to DefaultBytes: 40 MB for versions, about 200,000 without values,
// and 20 MB for a filter of 16 million keys (and the next filter while a scan fills it).
func DefaultLimits() *Limits { return LimitsFor(DefaultBytes) }

// LimitsFor returns limits that bound the memory to so many bytes, always in the same proportion of
// versions and filter.
func LimitsFor(bytes int) *Limits {
	generation := bytes / 16 * 5
	return &Limits{GenerationBytes: generation, VersionBytes: min(64<<10, generation/8),
		MinKeys: min(1<<16, bytes/4), MaxKeys: bytes / 4, Misses: 256}
}

// Cache has the newest versions of keys. One goroutine calls its methods; Counts and the methods of
// a Filling may be called by others.
type Cache struct {
	limits Limits
	seed   maphash.Seed
	// young are the versions that were used since the generations changed, old those of the
	// generation before. Versions are found by the hash of the key. Of two keys with the same hash,
	// only the latest is kept.
	young, old map[uint64]entry
	youngBytes int
	// misses counts the reads of absent keys since a filter was made.
	misses int
	// fromVersions, fromFilter and unknown count the results of Get, as in Counts.
	fromVersions, fromFilter, unknown atomic.Uint64

	mu struct {
		sync.Mutex
		// whole is the filter with all keys; nil if there is none. filling replaces it when
		// filling's scan is complete.
		whole, filling *filter
		// capacity is the capacity of the next filter, in keys. larger is set if a new filter is
		// due because the last had too many keys.
		capacity int
		larger   bool
	}
}

// entry is a version; bare is set if it lacks its value.
type entry struct {
	kv   *storepb.KeyValue
	bare bool
}

// New returns an empty Cache. A nil limits means DefaultLimits.
func New(limits *Limits) *Cache {
	if limits == nil {
		limits = DefaultLimits()
	}
	c := &Cache{limits: *limits, seed: maphash.MakeSeed()}
	c.clearVersions()
	c.mu.capacity = c.limits.MinKeys
	return c
}

func (c *Cache) clearVersions() {
	c.young, c.old, c.youngBytes = map[uint64]entry{}, nil, 0
}

// Reset empties the cache, since the state was replaced.
func (c *Cache) Reset() {
	c.clearVersions()
	c.misses = 0
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.whole, c.mu.filling, c.mu.capacity, c.mu.larger = nil, nil, c.limits.MinKeys, false
}

// Get returns the newest version of a key; nil if there is none, or if it is a deletion. If known
// is false, the caller has to read the version. The version is shared, and must not be changed. It
// may lack its value unless whole is set.
func (c *Cache) Get(key []byte, whole bool) (kv *storepb.KeyValue, known bool) {
	h := c.hash(key)
	e, ok := c.young[h]
	if !ok {
		if e, ok = c.old[h]; ok {
			delete(c.old, h)
			c.keep(h, e)
		}
	}
	if ok && bytes.Equal(e.kv.Key, key) {
		switch {
		case e.kv.Version == 0:
			c.fromVersions.Add(1)
			return nil, true
		case !whole || !e.bare:
			c.fromVersions.Add(1)
			return e.kv, true
		}
		c.unknown.Add(1)
		return nil, false
	}
	if c.absent(h) {
		c.fromFilter.Add(1)
		return nil, true
	}
	c.unknown.Add(1)
	return nil, false
}

// absent reports whether the filter shows that no key has that hash.
func (c *Cache) absent(h uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.whole != nil && !c.mu.whole.has(h)
}

// Counts are the numbers of Get's results so far: cached versions, keys absent by the filter, and
// unknown keys.
type Counts struct{ Versions, Filter, Unknown uint64 }

// Counts may be called from any goroutine.
func (c *Cache) Counts() Counts {
	return Counts{c.fromVersions.Load(), c.fromFilter.Load(), c.unknown.Load()}
}

// Read adds the result of a read of a key that Get did not know: its newest version, or nil for
// none. whole is set if the version has its value. The version is kept, and must not be changed any
// more.
func (c *Cache) Read(key []byte, kv *storepb.KeyValue, whole bool) {
	if kv == nil {
		c.misses++
		return
	}
	c.keep(c.hash(key), entry{kv, !whole})
}

// Wrote adds a written version, which is its key's newest; kv.Version is 0 for a deletion. If whole
// is set, the version is kept with its value, and must not be changed any more; otherwise a copy
// without the value is kept, which shares the key.
func (c *Cache) Wrote(kv *storepb.KeyValue, whole bool) {
	h := c.hash(kv.Key)
	delete(c.old, h)
	if whole {
		c.keep(h, entry{kv: kv})
	} else {
		c.keep(h, bare(kv))
	}
	if kv.Version != 1 {
		return // the filters have the key since it was created
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.whole != nil {
		c.mu.whole.add(h)
	}
	if c.mu.filling != nil {
		c.mu.filling.add(h)
	}
}

func (c *Cache) hash(key []byte) uint64 { return maphash.Bytes(c.seed, key) }

func bare(kv *storepb.KeyValue) entry {
	return entry{bare: true, kv: &storepb.KeyValue{Key: kv.Key, ModRevision: kv.ModRevision,
		CreateRevision: kv.CreateRevision, Version: kv.Version, Lease: kv.Lease}}
}

// keep puts a version into the young generation, and replaces the key's previous version.
func (c *Cache) keep(h uint64, e entry) {
	if before, ok := c.young[h]; ok {
		c.youngBytes -= size(before.kv)
		delete(c.young, h)
	}
	if size(e.kv) > c.limits.VersionBytes {
		e = bare(e.kv)
	}
	n := size(e.kv)
	if n > c.limits.GenerationBytes {
		return
	}
	if c.youngBytes+n > c.limits.GenerationBytes {
		c.old, c.young, c.youngBytes = c.young, map[uint64]entry{}, 0
	}
	c.young[h] = e
	c.youngBytes += n
}

// size is the approximate memory of a version with its map entry, in bytes.
func size(kv *storepb.KeyValue) int { return len(kv.Key) + len(kv.Value) + 160 }
