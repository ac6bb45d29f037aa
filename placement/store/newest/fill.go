package newest

// Filling is a filter that a scan fills.
type Filling struct {
	cache  *Cache
	filter *filter
	hashes []uint64
}

// Begin returns a filling if a filter is wanted, and none is filled; else nil. What the scan reads
// must have everything that was written before Begin; what is written later may be in it or not.
func (c *Cache) Begin() *Filling {
	c.mu.Lock()
	defer c.mu.Unlock()
	capacity := c.limits.MinKeys
	switch whole := c.mu.whole; {
	case c.mu.filling != nil:
		return nil
	case whole != nil:
		if whole.added <= whole.capacity || whole.capacity >= c.limits.MaxKeys {
			return nil
		}
		capacity = 2 * whole.capacity
	case c.misses < c.limits.Misses:
		return nil
	}
	c.misses = 0
	c.mu.filling = newFilter(min(capacity, c.limits.MaxKeys))
	return &Filling{cache: c, filter: c.mu.filling}
}

// Key says that a key exists. It is kept until Added.
func (f *Filling) Key(key []byte) { f.hashes = append(f.hashes, f.cache.hash(key)) }

// Added takes over the keys of a piece of the scan. If it says false, the scan is of no use any more.
func (f *Filling) Added() bool {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	if f.cache.mu.filling != f.filter {
		return false
	}
	for _, h := range f.hashes {
		f.filter.add(h)
	}
	f.hashes = f.hashes[:0]
	return true
}

// Done ends the filling. whole: the scan came through, so that the filter has all keys.
func (f *Filling) Done(whole bool) {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	if f.cache.mu.filling != f.filter {
		return
	}
	f.cache.mu.filling = nil
	if whole {
		f.cache.mu.whole = f.filter
	}
}
