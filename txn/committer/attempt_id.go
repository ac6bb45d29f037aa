package committer

import (
	"encoding/binary"
	"math"
	"slices"
	"sync"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/txn"
)

// attemptIDs gives the attempts of one transaction their ids. The zero value is that of a new
// transaction. Its methods may be called from any goroutine.
//
// Attempts of one transaction began at the same time, so ids decide between them (txn.Older). A
// later one's is lower: it is the one that is wanted. A request of an earlier one may still be on
// its way, or wait for a lock, and must not have the later one aborted. Ids of different
// transactions differ in the bytes that are shared, so they are in the same order whichever
// attempts meet.
type attemptIDs struct {
	mu     sync.Mutex
	shared [txn.SharedSize]byte
	// keyspaces are those that attempts have written to, or locked keys of, in no order.
	keyspaces []keys.KeyspaceID
	// last is the number of the latest attempt, 0 if there was none.
	last uint32
}

// meets notes a keyspace that an attempt writes to, or locks keys of.
func (f *attemptIDs) meets(id keys.KeyspaceID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Contains(f.keyspaces, id) {
		f.keyspaces = append(f.keyspaces, id)
	}
}

// begun is when a transaction began whose next attempt begins now, and the first one at first:
// then, or if its keyspaces do not believe a start so long ago, as long ago as they allow. It goes
// before nearly every other that way too; only among those that have taken so long it is the
// attempts' own beginnings that count.
func (f *attemptIDs) begun(s Sender, first, now hlc.Timestamp) hlc.Timestamp {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range f.keyspaces {
		age := s.MaxAge(id)
		if age == 0 {
			continue
		}
		if earliest := (hlc.Timestamp{Wall: now.Wall - int64(age)}); first.Less(earliest) {
			first = earliest
		}
	}
	return first
}

// next is the id of the next attempt, which is below those of all earlier ones. No id is given
// twice, nor is it the zero ID.
func (f *attemptIDs) next(random func() uint64) (id txn.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last <= 1 {
		// It is new, or has used up its numbers: then it goes on as another one.
		binary.BigEndian.PutUint64(f.shared[:], random())
		binary.BigEndian.PutUint32(f.shared[8:], uint32(random()>>32))
		f.last = math.MaxUint32
	} else {
		f.last--
	}
	copy(id[:], f.shared[:])
	binary.BigEndian.PutUint32(id[txn.SharedSize:], f.last)
	return id
}
