package newest

import "math/bits"

const (
	wordsOfBlock = 8 // of 64 bits: a cache line
	// probes is how many bits a key sets. With 10 bits for each key, some 1.2 % of the keys that are
	// absent are taken for present.
	probes     = 6
	bitsForKey = 10
)

// filter is a set of hashes that may contain further ones by mistake, in blocks: all bits of a hash
// are in one (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom Filters, 2007).
type filter struct {
	blocks [][wordsOfBlock]uint64
	// capacity is the number of hashes for which it is made; added counts the hashes that were new
	// when they were added, and filled how many of them there were when its scan was complete.
	capacity, added, filled int
}

func newFilter(capacity int) *filter {
	n := (capacity*bitsForKey + wordsOfBlock*64 - 1) / (wordsOfBlock * 64)
	return &filter{blocks: make([][wordsOfBlock]uint64, n), capacity: capacity}
}

// place is the block of a hash, and what its bits are taken from.
func (f *filter) place(h uint64) (*[wordsOfBlock]uint64, uint64) {
	i, _ := bits.Mul64(h, uint64(len(f.blocks)))
	return &f.blocks[i], h * 0x9e3779b97f4a7c15
}

func (f *filter) add(h uint64) {
	block, x := f.place(h)
	fresh := false
	for range probes {
		word, bit := &block[x&7], uint64(1)<<(x>>3&63)
		fresh = fresh || *word&bit == 0
		*word |= bit
		x >>= 9
	}
	if fresh {
		f.added++
	}
}

func (f *filter) has(h uint64) bool {
	block, x := f.place(h)
	for range probes {
		if block[x&7]&(1<<(x>>3&63)) == 0 {
			return false
		}
		x >>= 9
	}
	return true
}
