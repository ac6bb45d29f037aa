package space

import (
	"sync"

	"github.com/tidemarkdb/tidemark/range/invariants"
)

const (
	// LeaseBytes is the size that a lease counts for.
	LeaseBytes = 64
	// versionBytes is the size of the keys of a version and of its event beside the key itself;
	// recordBytes is the greatest size of a version's record beside the value.
	versionBytes = 20 + 23
	recordBytes  = 4*11 + 1
	// There is room again when the free part of the quota is at least a leastHeadroom-th of it, and
	// at least the size refused last, but never more than a mostHeadroom-th is needed.
	leastHeadroom, mostHeadroom = 10, 2
)

// Put is the most bytes that a put of a key and a value adds.
func Put(key, value int) uint64 {
	return uint64(2*key + value + versionBytes + recordBytes)
}

// Ledger has the size of a store. Its zero value is for an empty store without a quota. It is safe
// for concurrent use. Its lock is a leaf.
type Ledger struct {
	mu sync.Mutex
	// quota is the size up to which commands are admitted; 0 without a quota.
	quota uint64
	// size is the size of the applied state; reserved is the sum of the bytes that admitted
	// commands may add.
	size, reserved uint64
	// refused is the largest reservation refused since the last call of Forget.
	refused uint64
	// freed is the number of bytes removed since the process started.
	freed uint64
}

// SetQuota sets the quota; 0 removes it.
func (l *Ledger) SetQuota(bytes uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quota = bytes
}

// Quota is the quota; 0 without one.
func (l *Ledger) Quota() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.quota
}

// Reserve admits a command that may add so many bytes, unless the quota would be crossed.
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

// Release returns the reservations of commands that will not be applied, or whose outcome another
// leader decides.
func (l *Ledger) Release(bytes uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserved -= min(bytes, l.reserved)
}

// Applied sets the size, after commands were applied that had reserved `reserved` bytes and removed
// `freed` bytes.
func (l *Ledger) Applied(size, reserved, freed uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.size = size
	l.reserved -= min(reserved, l.reserved)
	l.freed += freed
}

// Size is the size of the applied state.
func (l *Ledger) Size() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// Freed is the number of bytes removed since the process started.
func (l *Ledger) Freed() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.freed
}

// Forget drops the record of refusals, since the alarm that they caused has ended.
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
