package admission

import "sync"

// Members are the owners of work that pauses. Work that pauses gets done later than it could, so it
// does for few owners at a time, and for others not at all. It is safe for concurrent use.
type Members[K comparable] struct {
	most int

	mu struct {
		sync.Mutex
		// joined is how many works of an owner there are.
		joined map[K]int
	}
}

// NewMembers returns an empty list for at most so many owners.
func NewMembers[K comparable](most int) *Members[K] {
	m := &Members[K]{most: most}
	m.mu.joined = make(map[K]int)
	return m
}

// Join makes a work of an owner one that pauses, unless there are enough owners. The work is to
// Leave then.
func (m *Members[K]) Join(owner K) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.joined[owner] == 0 && len(m.mu.joined) >= m.most {
		return false
	}
	m.mu.joined[owner]++
	return true
}

// Leave ends that.
func (m *Members[K]) Leave(owner K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.joined[owner]--; m.mu.joined[owner] <= 0 {
		delete(m.mu.joined, owner)
	}
}

// Len is how many owners there are.
func (m *Members[K]) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.mu.joined)
}
