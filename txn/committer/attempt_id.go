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

// attemptIDs gives the attempts of one transaction their ids. The zero value is for a new
// transaction. Its methods may be called from any goroutine.
//
// Attempts of one transaction began at the same time, so ids decide between them (txn.Older). A
// later attempt is the wanted one, and has the lower id. A request of an earlier attempt may still
// be on its way, or wait for a lock, and must not abort the later one. Ids of different
// transactions differ in the shared bytes, so they are in the same order whichever attempts meet.
type attemptIDs struct {
	mu     sync.Mutex
	shared [txn.SharedSize]byte
	// keyspaces are those in which attempts have written or locked keys, in no order.
	keyspaces []keys.KeyspaceID
	// last is the number of the latest attempt, 0 if there was none.
	last uint32
}

// meets notes a keyspace in which an attempt writes or locks keys.
func (f *attemptIDs) meets(id keys.KeyspaceID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Contains(f.keyspaces, id) {
		f.keyspaces = append(f.keyspaces, id)
	}
}

// begun returns the beginning (txn.Info.Begun) of an attempt that begins now, of a transaction
// whose first attempt began at first. It is first, or if the keyspaces do not believe so early a
// time, the earliest that they do. That still goes before nearly every other transaction; only
// among those that have taken as long do the beginnings of attempts decide.
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

// next returns the id of the next attempt, which is below those of all earlier attempts. It never
// returns an id twice, nor the zero ID.
func (f *attemptIDs) next(random func() uint64) (id txn.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last <= 1 {
		// A new transaction; or one that has used up its numbers, and continues as another
		// transaction.
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
