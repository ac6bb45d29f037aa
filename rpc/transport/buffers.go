package transport

import (
	"math/bits"
	"sync"
)

const (
	// smallestLarge and largestLarge are exponents: large buffers have from 128 KiB to 2 MiB,
	// enough for the longest message of several records. Larger buffers are left to the garbage
	// collector.
	smallestLarge = 17
	largestLarge  = 21
)

// largeBuffers holds the large buffers, which connections use only until a message is written: as
// *[]byte, by exponent.
var largeBuffers [largestLarge + 1]sync.Pool

// withRoom returns a buffer that begins with the bytes of b and has room for n more: b itself if it
// has the room. The result replaces b.
func withRoom(b []byte, n int) []byte {
	total := len(b) + n
	if total <= cap(b) {
		return b
	}
	grown := append(newBuffer(total), b...)
	release(b)
	return grown
}

// newBuffer returns an empty buffer with room for n bytes.
func newBuffer(n int) []byte {
	exponent := max(bits.Len(uint(max(n, 1)-1)), smallestBuffer)
	switch {
	case exponent > largestLarge:
		return make([]byte, 0, n)
	case exponent >= smallestLarge:
		if b, ok := largeBuffers[exponent].Get().(*[]byte); ok {
			return *b
		}
	}
	return make([]byte, 0, 1<<exponent)
}

// smallestBuffer is the exponent of the smallest buffer that is made.
const smallestBuffer = 9

// release puts a large buffer back into its pool, and returns nil; a smaller one it returns,
// emptied, for the connection to keep.
func release(b []byte) []byte {
	if cap(b) <= bufferBytes {
		return b[:0]
	}
	exponent := bits.Len(uint(cap(b))) - 1
	if exponent >= smallestLarge && exponent <= largestLarge {
		large := b[:0] // not b, whose address would put it on the heap in any case
		largeBuffers[exponent].Put(&large)
	}
	return nil
}
