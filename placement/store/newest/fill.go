package newest

// Filling is a filter that a scan fills.
type Filling struct {
	cache  *Cache
	filter *filter
	hashes []uint64
	keys   int
}

// growth is the ratio of a filter's capacity to the previous one's, if that had too many keys.
const growth = 8

// Begin returns a filling if a filter is wanted, and none is being filled; otherwise nil. The scan
// must include all writes before Begin; it may include later writes.
func (c *Cache) Begin() *Filling {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch whole := c.mu.whole; {
	case c.mu.filling != nil:
		return nil
	case c.mu.larger:
		// The last filter had too many keys.
	case whole != nil && whole.added-whole.filled <= whole.capacity/2,
		whole == nil && c.misses < c.limits.Misses:
		return nil
	}
	c.misses, c.mu.larger = 0, false
	c.mu.filling = newFilter(c.mu.capacity)
	return &Filling{cache: c, filter: c.mu.filling}
}

// Key adds an existing key. The filling keeps the key until Added.
func (f *Filling) Key(key []byte) { f.hashes = append(f.hashes, f.cache.hash(key)) }

// Added adds the keys of a piece of the scan to the filter. If it returns false, the scan has to
// end. A filter that the scan fills by half is given up for a larger one, if a larger one is
// allowed.
func (f *Filling) Added() bool {
	c := f.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.filling != f.filter {
		return false
	}
	f.keys += len(f.hashes)
	if f.keys > f.filter.capacity/2 && f.filter.capacity < c.limits.MaxKeys {
		c.mu.capacity = min(growth*f.filter.capacity, c.limits.MaxKeys)
		c.mu.filling, c.mu.larger = nil, true
		return false
	}
	for _, h := range f.hashes {
		f.filter.add(h)
	}
	f.hashes = f.hashes[:0]
	return true
}

// Done ends the filling. whole is set if the scan is complete, so that the filter has all keys.
func (f *Filling) Done(whole bool) {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	if f.cache.mu.filling != f.filter {
		return
	}
	f.cache.mu.filling = nil
	if whole {
		f.filter.filled = f.filter.added
		f.cache.mu.whole = f.filter
	}
}
