package workloads

import (
	"sync"

	"github.com/tidemarkdb/tidemark/kv"
)

// memory remembers the versions of recently seen values.
type memory struct {
	mu struct {
		sync.Mutex
		// newer and older are two generations. The older one is dropped when the newer one is full.
		newer, older map[string]kv.Timestamp
	}
}

// remembered is the size of a generation.
const remembered = 2000

// know returns the version remembered for a name.
func (m *memory) know(name string) (kv.Timestamp, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.knowLocked(name)
}

func (m *memory) knowLocked(name string) (kv.Timestamp, bool) {
	if known, ok := m.mu.newer[name]; ok {
		return known, true
	}
	known, ok := m.mu.older[name]
	return known, ok
}

// remember stores the version for a name, unless a version is stored already. It returns the stored
// version.
func (m *memory) remember(name string, version kv.Timestamp) kv.Timestamp {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, ok := m.knowLocked(name); ok {
		return known
	}
	if len(m.mu.newer) == remembered || m.mu.newer == nil {
		m.mu.older, m.mu.newer = m.mu.newer, make(map[string]kv.Timestamp)
	}
	m.mu.newer[name] = version
	return version
}
