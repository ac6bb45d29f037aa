package space

import (
	"sync"

	"github.com/tidemarkdb/tidemark/range/invariants"
)

const (
	// LeaseBytes is what a lease counts.
	LeaseBytes = 64
	// versionBytes is the size of the keys of a version and of its event beside the key itself;
	// recordBytes is the greatest size of a version's record beside the value.
	versionBytes = 20 + 23
	recordBytes  = 4*11 + 1
	// There is room again when the free part of the quota is a leastHeadroom-th, or as much as was
	// refused last; no more than a mostHeadroom-th is asked for.
	leastHeadroom, mostHeadroom = 10, 2
)

// Put is the most bytes that a put of a key and a value adds.
func Put(key, value int) uint64 {
	return uint64(2*key + value + versionBytes + recordBytes)
}

// Ledger has the size of a store. Its zero value is that of an empty store without a quota. It is
// safe for concurrent use, and calls nothing while its lock is held.
type Ledger struct {
	mu sync.Mutex
	// quota is the largest size to which commands may be let in; 0: there is none.
	quota uint64
	// size is that of the applied state; reserved is what admitted commands may add.
	size, reserved uint64
	// refused is the largest that was refused since the last call of Forget.
	refused uint64
	// freed is how many bytes were removed since the process started.
	freed uint64
}

// SetQuota sets the quota; 0 is none.
func (l *Ledger) SetQuota(bytes uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quota = bytes
}

// Quota is the quota; 0 if there is none.
func (l *Ledger) Quota() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.quota
}

// Reserve lets a command in that may add so many bytes, unless the quota would be crossed.
func (l *Ledger) Reserve(bytes uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.quota > 0 && bytes > 0 && l.size+l.reserved+bytes > l.quota {
		l.refused = max(l.refused, bytes)
		return false
	}
	l.reserved += bytes
	if invariants.Enabled {
		invariants.Check(l.quota == 0 || bytes == 0 || l.size+l.reserved <= l.quota,
			"the store: %d bytes are let in beside %d, and the quota is %d", l.reserved, l.size, l.quota)
	}
	return true
}

// Release gives back what commands have reserved that will not be applied, or whose outcome another
// leader decides.
func (l *Ledger) Release(bytes uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserved -= min(bytes, l.reserved)
}

// Applied sets the size, after commands were applied that have reserved so many bytes and have
// removed freed bytes.
func (l *Ledger) Applied(size, reserved, freed uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.size = size
	l.reserved -= min(reserved, l.reserved)
	l.freed += freed
}

// Size is that of what is applied.
func (l *Ledger) Size() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// Freed is how many bytes were removed since the process started.
func (l *Ledger) Freed() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.freed
}

// Forget forgets what was refused: the alarm that it caused has ended.
func (l *Ledger) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused = 0
}

// Room reports whether the size is above the quota, or so far below it that an alarm can end: by a
// tenth of the quota, and by what was refused last if that is no more than half of the quota.
func (l *Ledger) Room() (over, roomy bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.quota == 0 {
		return false, true
	}
	headroom := max(l.quota/leastHeadroom, min(l.refused, l.quota/mostHeadroom))
	return l.size > l.quota, l.size+headroom <= l.quota
}
