package replica

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/hlc"
)

// recent remembers of keys that this leadership has written when that was, and whether they have a value since. A blind write
// needs no more of what was there before: not the value, only that no attempt of its own wrote it (dedupe.go), a timestamp to be
// above, and what to count. Without it every put would search the state for a version that it does not want.
//
// It is a table of hashes, not of keys, in buckets of a few slots; a bucket that is full forgets its oldest.
//
// INVARIANT: a slot's timestamp is at or above those of all applied versions of all keys with its hash that this reign has
// written, and a slot exists only if the reign has written such a key. So a timestamp that is at or below a session's proves that none of the
// key's versions is above it, even if two keys share a hash; what such a collision could spoil is the count of live keys, by one.
//
// It belongs to the replica's lock, and is forgotten with the reign: what another leader wrote it has not seen, nor what an earlier reign of this one proposed.
type recent struct {
	slots []recentSlot
	used  int
}

type recentSlot struct {
	hash    uint64
	wall    int64
	logical uint32
	live    bool
	waits   bool
}

const (
	recentBucket   = 4
	recentMinSlots = 64
)

// recentBudget bounds the tables of all replicas of a node together, in slots.
type recentBudget struct {
	used  atomic.Int64
	limit int64
}

// take takes slots from the budget, or none.
func (b *recentBudget) take(n int) bool {
	if b.used.Add(int64(n)) > b.limit {
		b.used.Add(int64(-n))
		return false
	}
	return true
}

func (b *recentBudget) give(n int) { b.used.Add(int64(-n)) }

var recentSeed = maphash.MakeSeed()

// recentHash is never 0, which marks an empty slot. The seed keeps a hostile client from choosing keys that collide.
func recentHash(key string) uint64 {
	return maphash.String(recentSeed, key) | 1<<63
}

func (t *recent) bucket(hash uint64) []recentSlot {
	at := int(hash) & (len(t.slots)/recentBucket - 1) * recentBucket
	return t.slots[at : at+recentBucket]
}

// find returns when the newest version was written, whether it is a value, and whether it has commit wait; ok is false if that is not known.
func (t *recent) find(hash uint64) (ts hlc.Timestamp, live, waits, ok bool) {
	if len(t.slots) == 0 {
		return hlc.Timestamp{}, false, false, false
	}
	for i := range t.bucket(hash) {
		if s := &t.bucket(hash)[i]; s.hash == hash {
			return hlc.Timestamp{Wall: s.wall, Logical: s.logical}, s.live, s.waits, true
		}
	}
	return hlc.Timestamp{}, false, false, false
}

// note remembers a version; of one key they come in order. The table grows up to most slots, while the budget lasts.
func (t *recent) note(hash uint64, ts hlc.Timestamp, live, waits bool, most int, budget *recentBudget) {
	slot := recentSlot{hash: hash, wall: ts.Wall, logical: ts.Logical, live: live, waits: waits}
	for {
		if len(t.slots) > 0 && t.put(slot) {
			return
		}
		if !t.grow(most, budget) {
			break
		}
	}
	if len(t.slots) == 0 {
		return
	}
	oldest := &t.bucket(hash)[0]
	for i := range t.bucket(hash) {
		s := &t.bucket(hash)[i]
		if s.wall < oldest.wall || (s.wall == oldest.wall && s.logical < oldest.logical) {
			oldest = s
		}
	}
	*oldest = slot
}

// put fills the slot of the hash, or a free one.
func (t *recent) put(slot recentSlot) bool {
	var free *recentSlot
	bucket := t.bucket(slot.hash)
	for i := range bucket {
		switch s := &bucket[i]; {
		case s.hash == slot.hash:
			if s.wall < slot.wall || (s.wall == slot.wall && s.logical < slot.logical) {
				*s = slot
			}
			return true
		case s.hash == 0 && free == nil:
			free = s
		}
	}
	if free == nil {
		return false
	}
	*free = slot
	t.used++
	return true
}

// grow makes the table larger, unless its buckets are full by bad luck only.
func (t *recent) grow(most int, budget *recentBudget) bool {
	n := len(t.slots)
	next := max(recentMinSlots, 2*n)
	if next > most || (n > 0 && t.used < n/2) || !budget.take(next-n) {
		return false
	}
	old := t.slots
	t.slots, t.used = make([]recentSlot, next), 0
	for _, s := range old {
		if s.hash != 0 {
			t.put(s) // a bucket's slots part into two: there is room
		}
	}
	return true
}

// reset forgets everything.
func (t *recent) reset(budget *recentBudget) {
	budget.give(len(t.slots))
	t.slots, t.used = nil, 0
}
