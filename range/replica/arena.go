package replica

// arena copies small byte strings into few large blocks. What it returned stays as it is for as long as anybody holds it.
type arena struct {
	free []byte
	next int
}

const (
	firstArenaBlock = 4 << 10
	maxArenaBlock   = 256 << 10
)

func (a *arena) copy(b []byte) []byte {
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
