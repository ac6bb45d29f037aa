package quota

import (
	"sync"

	"github.com/tidemarkdb/tidemark/range/invariants"
)

// Bytes is a number of bytes of memory that principals share. Safe for concurrent use.
type Bytes struct {
	limit, granted int64

	mu    sync.Mutex
	total int64
	held  map[string]int64
}

// NewBytes returns limit bytes to share. Each principal may hold granted bytes whatever its share,
// as long as bytes are left.
func NewBytes(limit, granted int64) *Bytes {
	return &Bytes{limit: limit, granted: granted, held: make(map[string]int64)}
}

// Take takes n bytes for a principal. It returns false if they are not available.
func (b *Bytes) Take(of string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.limit - b.total - n
	if held := b.held[of] + n; left < 0 || held > b.granted && held > left {
		return false
	}
	if n == 0 {
		return true // nobody gives it back
	}
	b.held[of] += n
	b.total += n
	if invariants.Enabled {
		invariants.Check(n >= 0 && b.total <= b.limit, "%d bytes are taken, and there are %d", b.total,
			b.limit)
	}
	return true
}

// Force takes n bytes for a principal, even if they are not available.
func (b *Bytes) Force(of string, n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held[of] += n
	b.total += n
}

// Give returns bytes that the principal has taken.
func (b *Bytes) Give(of string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if invariants.Enabled {
		invariants.Check(n >= 0 && n <= b.held[of] && b.held[of] <= b.total,
			"%q gives back %d bytes, holds %d, and all hold %d", of, n, b.held[of], b.total)
	}
	b.total -= n
	if b.held[of] -= n; b.held[of] <= 0 {
		delete(b.held, of)
	}
}

// Limit returns how many bytes there are.
func (b *Bytes) Limit() int64 { return b.limit }

// Most returns how many bytes a principal can take at a time while nobody holds any. It can never
// take more.
func (b *Bytes) Most() int64 { return max(min(b.granted, b.limit), b.limit/2) }

// Held returns how many bytes are held.
func (b *Bytes) Held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total
}
