package wire

import (
	"math/bits"
	"sync"

	"google.golang.org/grpc/mem"
)

const (
	smallestBuffer = 8  // exponent: 256 B
	largestBuffer  = 20 // exponent: 1 MiB; larger buffers are left to the garbage collector
)

// Buffers is the pool of all buffers that this package and its gRPC connections use. gRPC's own
// pool has five sizes and clears a buffer at every Get, which for messages of a few hundred bytes
// costs more than filling it. This pool has all powers of two and clears nothing: users write to a
// buffer before they read it.
var Buffers = &bufferPool{}

type bufferPool struct {
	sizes [largestBuffer + 1]sync.Pool
}

var _ mem.BufferPool = (*bufferPool)(nil)

// Get implements mem.BufferPool. The content is arbitrary.
func (p *bufferPool) Get(length int) *[]byte {
	exponent := max(smallestBuffer, bits.Len(uint(max(length, 1)-1)))
	if exponent > largestBuffer {
		b := make([]byte, length)
		return &b
	}
	if b, ok := p.sizes[exponent].Get().(*[]byte); ok {
		*b = (*b)[:length]
		return b
	}
	b := make([]byte, length, 1<<exponent)
	return &b
}

// Put implements mem.BufferPool.
func (p *bufferPool) Put(b *[]byte) {
	exponent := bits.Len(uint(cap(*b))) - 1
	if exponent < smallestBuffer || exponent > largestBuffer {
		return
	}
	p.sizes[exponent].Put(b)
}
