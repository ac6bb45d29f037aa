package txn

import (
	"strings"

	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	// lockSuffix is the anchored suffix of a Lock. A key has at most one.
	lockSuffix = "lock"
	// recordPrefix starts the anchored suffix of a Record; the id follows.
	recordPrefix = "transaction/"
)

// Anchored is the kind of value that an anchored state key holds.
type Anchored uint8

const (
	// AnchoredOther is any key that does not belong to a transaction.
	AnchoredOther Anchored = iota
	// AnchoredLock is a Lock.
	AnchoredLock
	// AnchoredRecord is a Record.
	AnchoredRecord
)

// Classify returns the kind of value for an anchored suffix (see keys.DecodeAnchorKey), and for a
// record its transaction's ID. A suffix that begins like a record's, but has no valid ID, is
// AnchoredOther.
func Classify(suffix string) (Anchored, ID) {
	if suffix == lockSuffix {
		return AnchoredLock, ID{}
	}
	if b, ok := strings.CutPrefix(suffix, recordPrefix); ok && len(b) == idSize {
		if id := ID([]byte(b)); !id.IsZero() {
			return AnchoredRecord, id
		}
	}
	return AnchoredOther, ID{}
}

// LockKey returns the state key of the lock of an internal key.
func LockKey(internalKey []byte) []byte { return keys.AnchorKey(internalKey, lockSuffix) }

// RecordKey returns the state key of a transaction's record; internalAnchor is the internal key of
// its anchor.
func RecordKey(internalAnchor []byte, id ID) []byte {
	suffix := append(make([]byte, 0, len(recordPrefix)+idSize), recordPrefix...)
	return keys.AnchorKey(internalAnchor, string(append(suffix, id[:]...)))
}
