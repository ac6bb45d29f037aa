package txn

import (
	"strings"

	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	// LockSuffix is the anchored suffix of a Lock. A key has at most one.
	LockSuffix = "lock"
	// RecordPrefix starts the anchored suffix of a Record; the id follows.
	RecordPrefix = "transaction/"
)

// Anchored is what an anchored state key is of.
type Anchored uint8

const (
	// AnchoredOther is nothing of a transaction.
	AnchoredOther Anchored = iota
	// AnchoredLock is a Lock.
	AnchoredLock
	// AnchoredRecord is a Record.
	AnchoredRecord
)

// Classify says what an anchored suffix (see keys.DecodeAnchorKey) is of; for a record it says
// whose. A suffix that starts like a record's and is none is AnchoredOther.
func Classify(suffix string) (Anchored, ID) {
	if suffix == LockSuffix {
		return AnchoredLock, ID{}
	}
	if b, ok := strings.CutPrefix(suffix, RecordPrefix); ok && len(b) == IDSize {
		if id := ID([]byte(b)); !id.IsZero() {
			return AnchoredRecord, id
		}
	}
	return AnchoredOther, ID{}
}

// LockKey is the state key of the lock of an internal key.
func LockKey(internalKey []byte) []byte { return keys.AnchorKey(internalKey, LockSuffix) }

// RecordKey is the state key of a transaction's record; internalAnchor is the internal key of its
// anchor.
func RecordKey(internalAnchor []byte, id ID) []byte {
	suffix := append(make([]byte, 0, len(RecordPrefix)+IDSize), RecordPrefix...)
	return keys.AnchorKey(internalAnchor, string(append(suffix, id[:]...)))
}
