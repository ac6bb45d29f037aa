package coordinator

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/tidemarkdb/tidemark/txn"
)

// family gives the attempts of one transaction their ids. The zero family is that of a new transaction. Its methods may be called from any
// goroutine.
//
// Attempts of one transaction began at the same time, so ids decide between them (txn.Older). A later one's is lower: it is the one that is
// wanted. A request of an earlier one may still be on its way, or wait for a lock, and must not have the later one aborted. Ids of different
// transactions differ in the bytes that are shared, so they are in the same order whichever attempts meet.
type family struct {
	mu     sync.Mutex
	shared [txn.SharedSize]byte
	// last is the number of the latest attempt, 0 if there was none.
	last uint32
}

// next is the id of the next attempt, which is below those of all earlier ones. No id is given twice, nor is it the zero ID.
func (f *family) next(random func() uint64) (id txn.ID) {
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
