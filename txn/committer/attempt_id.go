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
// later attempt has the lower id and so goes first: requests of an earlier attempt may still run,
// or wait for a lock, and must not abort the later attempt. Ids of different transactions differ in
// the shared bytes, so their order does not depend on the attempts.
type attemptIDs struct {
	mu     sync.Mutex
	shared [txn.SharedSize]byte
	// keyspaces are the keyspaces in which attempts have written or locked keys, in no order.
	keyspaces []keys.KeyspaceID
	// last is the number of the latest attempt, 0 before the first.
	last uint32
}

// meets records a keyspace in which an attempt writes or locks keys.
func (f *attemptIDs) meets(id keys.KeyspaceID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Contains(f.keyspaces, id) {
		f.keyspaces = append(f.keyspaces, id)
	}
}

// begun returns the beginning (txn.Info.Begun) of an attempt that begins now, of a transaction
// whose first attempt began at first. The beginning is first, or the earliest time that the
// keyspaces accept (txn.Limits.TooOld), if first is earlier. Such an attempt still goes before
// nearly every other transaction; among transactions that have all taken so long, the attempts'
// beginnings decide.
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
		// A new transaction; or a transaction that has used up its numbers, and continues as
		// another one.
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
