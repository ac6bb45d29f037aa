package txn

import (
	"bytes"
	"encoding/hex"
	"fmt"

	"github.com/tidemarkdb/tidemark/hlc"
)

const (
	// idSize is the length of an ID in bytes.
	idSize = 16
	// SharedSize is the number of leading bytes that the ids of a transaction's attempts share.
	SharedSize = idSize - 4
)

// ID names one attempt of a transaction. The client chooses it: random bytes, which all attempts of
// the transaction share, and a number at the end, which is lower for later attempts. The zero ID is
// no transaction.
type ID [idSize]byte

// ParseID reads an id from a message. It fails on anything but idSize bytes that are not all zero.
func ParseID(b []byte) (ID, error) {
	if len(b) != idSize {
		return ID{}, fmt.Errorf("a transaction id has %d bytes, this one has %d", idSize, len(b))
	}
	id := ID(b)
	if id.IsZero() {
		return ID{}, fmt.Errorf("a transaction id of %d zero bytes is none", idSize)
	}
	return id, nil
}

// ParseOptionalID reads an id that may be absent; then it returns the zero ID.
func ParseOptionalID(b []byte) (ID, error) {
	if len(b) == 0 {
		return ID{}, nil
	}
	return ParseID(b)
}

// SameTransaction reports whether two attempts are of the same transaction.
func (id ID) SameTransaction(other ID) bool {
	return [SharedSize]byte(id[:]) == [SharedSize]byte(other[:])
}

// IsZero reports whether the id is no transaction.
func (id ID) IsZero() bool { return id == ID{} }

// Bytes returns the id's wire form: a new slice, nil for the zero ID.
func (id ID) Bytes() []byte {
	if id.IsZero() {
		return nil
	}
	return append([]byte(nil), id[:]...)
}

// String returns the id in hexadecimal, or "none".
func (id ID) String() string {
	if id.IsZero() {
		return "none"
	}
	return hex.EncodeToString(id[:])
}

// Older reports whether transaction a goes before transaction b in a conflict: it began before, or
// at the same time with the lower id. The zero ID, no transaction, is younger than every
// transaction. An ID is not older than itself.
//
// So a later attempt of a transaction goes before an earlier attempt, whose requests may still wait
// for locks although no client needs them. No attempt of another transaction comes between the two.
func Older(aBegun hlc.Timestamp, a ID, bBegun hlc.Timestamp, b ID) bool {
	if a.IsZero() || b.IsZero() {
		return !a.IsZero()
	}
	if c := aBegun.Compare(bBegun); c != 0 {
		return c < 0
	}
	return bytes.Compare(a[:], b[:]) < 0
}
