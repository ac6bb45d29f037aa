package proposal

import (
	"hash/maphash"
	"sync/atomic"
	"unsafe"

	"github.com/tidemarkdb/tidemark/hlc"
)

// Recent remembers for keys that this leadership epoch has written the timestamp of the newest
// version and whether that is a value. A blind write needs no more of the state: not the value,
// only that no attempt of its own wrote it, a timestamp to be above, and the change of the
// statistics. Without Recent every put would search the state for a version that it does not want.
//
// Recent is a table of hashes, not of keys, in buckets of a few slots. A full bucket forgets its
// oldest slot.
//
// INVARIANT: a slot's timestamp is at or above those of all applied versions of all keys with its
// hash that this epoch has written, and a slot exists only if the epoch has written such a key. So
// a timestamp that is at or below a session's proves that none of the key's versions is above it,
// even if two keys share a hash. Such a collision can only make the count of live keys wrong by
// one.
//
// It is forgotten with the epoch: it has not seen the writes of other leaders, nor those that an
// earlier epoch of this leader proposed. It is not safe for concurrent use.
type Recent struct {
	slots  []recentSlot
	used   int
	limit  int
	budget *Budget
}

type recentSlot struct {
	hash       uint64
	wall       int64
	logical    uint32
	live       bool
	commitWait bool
	expires    bool
}

// RecentSlotBytes is the size of a slot.
const RecentSlotBytes = int64(unsafe.Sizeof(recentSlot{}))

const (
	recentBucket   = 4
	recentMinSlots = 64
)

// Budget bounds the slots of all tables of a node together. It is safe for concurrent use.
type Budget struct {
	used  atomic.Int64
	limit int64
}

// NewBudget returns a budget with a number of slots.
func NewBudget(slots int) *Budget { return &Budget{limit: int64(slots)} }

// take takes n slots from the budget, or none of them.
func (b *Budget) take(n int) bool {
	if b.used.Add(int64(n)) > b.limit {
		b.used.Add(int64(-n))
		return false
	}
	return true
}

func (b *Budget) give(n int) { b.used.Add(int64(-n)) }

// recentSeed keeps a hostile client from choosing keys that collide.
var recentSeed = maphash.MakeSeed()

// recentHash is never 0, which marks an empty slot.
func recentHash(key string) uint64 {
	return maphash.String(recentSeed, key) | 1<<63
}

// NewRecent returns an empty table, which grows up to limit slots while the budget lasts.
func NewRecent(limit int, budget *Budget) Recent {
	return Recent{limit: limit, budget: budget}
}

func (t *Recent) bucket(hash uint64) []recentSlot {
	at := int(hash) & (len(t.slots)/recentBucket - 1) * recentBucket
	return t.slots[at : at+recentBucket]
}

// Known is the entry of a key in Recent.
type Known struct {
	// Timestamp is that of the newest version.
	Timestamp hlc.Timestamp
	// Live is set if the newest version is a value.
	Live bool
	// CommitWait is set if it was written with commit wait.
	CommitWait bool
	// Expires is set if it expires. The time of expiry is not kept.
	Expires bool
}

// Find returns the entry of a key; ok is false if there is none.
func (t *Recent) Find(key string) (known Known, ok bool) {
	if len(t.slots) == 0 {
		return Known{}, false
	}
	hash := recentHash(key)
	bucket := t.bucket(hash)
	for i := range bucket {
		if s := &bucket[i]; s.hash == hash {
			at := hlc.Timestamp{Wall: s.wall, Logical: s.logical}
			return Known{Timestamp: at, Live: s.live, CommitWait: s.commitWait, Expires: s.expires},
				true
		}
	}
	return Known{}, false
}

// Note remembers an applied version. Versions of a key come in order.
func (t *Recent) Note(key string, k Known) {
	slot := recentSlot{
		hash: recentHash(key), wall: k.Timestamp.Wall, logical: k.Timestamp.Logical,
		live: k.Live, commitWait: k.CommitWait, expires: k.Expires,
	}
	for {
		if len(t.slots) > 0 && t.put(slot) {
			return
		}
		if !t.grow() {
			break
		}
	}
	if len(t.slots) == 0 {
		return
	}
	bucket := t.bucket(slot.hash)
	oldest := &bucket[0]
	for i := range bucket {
		if s := &bucket[i]; s.before(oldest) {
			oldest = s
		}
	}
	*oldest = slot
}

func (s *recentSlot) before(o *recentSlot) bool {
	return s.wall < o.wall || (s.wall == o.wall && s.logical < o.logical)
}

// put fills the slot of the hash, or a free one.
func (t *Recent) put(slot recentSlot) bool {
	var free *recentSlot
	bucket := t.bucket(slot.hash)
	for i := range bucket {
		switch s := &bucket[i]; {
		case s.hash == slot.hash:
			if s.before(&slot) {
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

// grow enlarges the table, unless its buckets are full only by bad luck.
func (t *Recent) grow() bool {
	n := len(t.slots)
	next := max(recentMinSlots, 2*n)
	if next > t.limit || (n > 0 && t.used < n/2) || !t.budget.take(next-n) {
		return false
	}
	old := t.slots
	t.slots, t.used = make([]recentSlot, next), 0
	for _, s := range old {
		if s.hash != 0 {
			t.put(s) // the slots of a bucket go to two buckets, so there is room
		}
	}
	return true
}

// Reset forgets everything, and gives the slots back to the budget.
func (t *Recent) Reset() {
	t.budget.give(len(t.slots))
	t.slots, t.used = nil, 0
}
