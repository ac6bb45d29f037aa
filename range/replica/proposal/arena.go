package proposal

// Arena copies small byte strings into few large blocks. A copy is unchanged for as long as it is
// referenced. The zero Arena is ready for use.
type Arena struct {
	free []byte
	next int
}

const (
	firstArenaBlock = 4 << 10
	maxArenaBlock   = 256 << 10
)

// Copy returns a copy of b.
func (a *Arena) Copy(b []byte) []byte {
	if len(b) > len(a.free) {
		a.next = min(max(2*a.next, firstArenaBlock), maxArenaBlock)
		if len(b) > a.next/4 {
			return append(make([]byte, 0, len(b)), b...)
		}
		a.free = make([]byte, a.next)
	}
	c := a.free[:len(b):len(b)]
	copy(c, b)
	a.free = a.free[len(b):]
	return c
}
