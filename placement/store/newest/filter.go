package newest

import "math/bits"

const (
	wordsOfBlock = 8 // of 64 bits: a cache line
	// probes is the number of bits that a key sets. With 10 bits for each key, some 1.2 % of absent
	// keys look present.
	probes     = 6
	bitsForKey = 10
)

// filter is a Bloom filter of hashes, in blocks: all bits of a hash are in one (Putze, Sanders,
// Singler: Cache-, Hash- and Space-Efficient Bloom Filters, 2007).
type filter struct {
	blocks [][wordsOfBlock]uint64
	// capacity is the number of hashes for which the filter is made. added counts the hashes that
	// were new when added; filled is the value of added when the scan was complete.
	capacity, added, filled int
}

func newFilter(capacity int) *filter {
	n := (capacity*bitsForKey + wordsOfBlock*64 - 1) / (wordsOfBlock * 64)
	return &filter{blocks: make([][wordsOfBlock]uint64, n), capacity: capacity}
}

// place returns the block of a hash, and the value from which its bits are derived.
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
