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
	// VersionBytes is how large a version may be that is kept with its value.
	VersionBytes int
	// MinKeys and MaxKeys are for how many keys the smallest and the largest filter are made. Each
	// takes 1.25 bytes for a key.
	MinKeys, MaxKeys int
	// Misses is the number of reads of absent keys before a filter is made.
	Misses int
}

// DefaultBytes is how much DefaultLimits have held at most.
const DefaultBytes = 64 << 20

// DefaultLimits have at most DefaultBytes held: 40 MB for versions, which are 200,000 without their
// values, and 20 for a filter of 16 million keys (beside the next one while that is filled).
func DefaultLimits() *Limits { return LimitsFor(DefaultBytes) }

// LimitsFor have at most so many bytes held, for versions and a filter in the same proportion
// whatever the bytes are.
func LimitsFor(bytes int) *Limits {
	generation := bytes / 16 * 5
	return &Limits{GenerationBytes: generation, VersionBytes: min(64<<10, generation/8),
		MinKeys: min(1<<16, bytes/4), MaxKeys: bytes / 4, Misses: 256}
}

// Cache has the newest versions of keys. Its methods are for one goroutine, but for Counts and
// those of a Filling, which another may call.
type Cache struct {
	limits Limits
	seed   maphash.Seed
	// young are the versions that were used since the generations changed, old those of the
	// generation before. Versions are found by the hash of the key; one of two keys with the same
	// hash is kept.
	young, old map[uint64]entry
	youngBytes int
	// misses counts the keys that were read and are absent, since a filter was made.
	misses int
	// fromVersions, fromFilter and unknown count what Get has returned.
	fromVersions, fromFilter, unknown atomic.Uint64

	mu struct {
		sync.Mutex
		// whole is the filter with all keys; nil: there is none. filling becomes it when its scan
		// is complete.
		whole, filling *filter
		// capacity is the number of keys for which the next filter is made. larger is set if that
		// is due, since the last one had too many keys.
		capacity int
		larger   bool
	}
}

// entry is a version; bare: without its value.
type entry struct {
	kv   *storepb.KeyValue
	bare bool
}

// New returns one that knows nothing. A nil limits means DefaultLimits.
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

// Reset forgets everything: the keys are now those of another state.
func (c *Cache) Reset() {
	c.clearVersions()
	c.misses = 0
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.whole, c.mu.filling, c.mu.capacity, c.mu.larger = nil, nil, c.limits.MinKeys, false
}

// Get returns the newest version of a key; nil if there is none or it is a deletion. If known is
// false, the caller has to read it. The version is shared, and must not be changed. It may lack its
// value unless whole is set.
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

// absent says whether the filter says that no key has that hash.
func (c *Cache) absent(h uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.whole != nil && !c.mu.whole.has(h)
}

// Counts is what Get has returned so far: versions that are kept, keys that the filter does not
// have, and not known.
type Counts struct{ Versions, Filter, Unknown uint64 }

// Counts may be called from any goroutine.
func (c *Cache) Counts() Counts {
	return Counts{c.fromVersions.Load(), c.fromFilter.Load(), c.unknown.Load()}
}

// Read notes what a read of a key found that Get did not know: its newest version, or nil for none.
// whole is set if it has its value. The version is kept, and must not be changed any more.
func (c *Cache) Read(key []byte, kv *storepb.KeyValue, whole bool) {
	if kv == nil {
		c.misses++
		return
	}
	c.keep(c.hash(key), entry{kv, !whole})
}

// Wrote notes that a version was written, and is its key's newest; its own version is 0 if it is a
// deletion. If whole is set, it is kept with its value, and must not be changed any more; otherwise
// a copy without the value is kept, which shares the key.
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

// keep puts a version into the young generation, in place of the former one.
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

// size is about how many bytes a version takes, and its place.
func size(kv *storepb.KeyValue) int { return len(kv.Key) + len(kv.Value) + 160 }
