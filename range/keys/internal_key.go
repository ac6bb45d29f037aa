package keys

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	// KeyspacePrefixLength is the number of bytes of the keyspace id, with which an internal key
	// begins.
	KeyspacePrefixLength = 4
	// HashPrefixLength is the number of bytes of the keyspace id and the hash number.
	HashPrefixLength = 6

	// MaxKeySize is the greatest length of a user key, in bytes.
	MaxKeySize = 8 << 10
	// MaxValueSize is the greatest length of a value, in bytes.
	MaxValueSize = 8 << 20
)

var (
	// ErrEmptyKey is the error of ValidateUserKey for an empty key.
	ErrEmptyKey = errors.New("the key is empty")
	// ErrKeyTooLarge is the error of ValidateUserKey for a key longer than MaxKeySize.
	ErrKeyTooLarge = errors.New("the key is too large")
	// ErrValueTooLarge is the error of ValidateValue for a value longer than MaxValueSize.
	ErrValueTooLarge = errors.New("the value is too large")
)

// KeyspacePrefix returns the prefix of the internal keys of a keyspace.
func KeyspacePrefix(ks KeyspaceID) []byte {
	return binary.BigEndian.AppendUint32(make([]byte, 0, KeyspacePrefixLength), uint32(ks))
}

// HashPrefix returns the prefix of the internal keys of a hash keyspace's partition n.
func HashPrefix(ks KeyspaceID, n uint16) []byte {
	prefix := binary.BigEndian.AppendUint32(make([]byte, 0, HashPrefixLength), uint32(ks))
	return binary.BigEndian.AppendUint16(prefix, n)
}

// ValidateUserKey returns an error unless a user key may be written: it must have 1 to MaxKeySize
// bytes.
func ValidateUserKey(key []byte) error {
	switch {
	case len(key) == 0:
		return fmt.Errorf("%w; a key has 1 to %d bytes", ErrEmptyKey, MaxKeySize)
	case len(key) > MaxKeySize:
		return fmt.Errorf("%w: %s; a key has 1 to %d bytes", ErrKeyTooLarge, Pretty(key), MaxKeySize)
	}
	return nil
}

// ValidateValue returns an error unless a value may be written: it must have at most MaxValueSize
// bytes.
func ValidateValue(value []byte) error {
	if len(value) > MaxValueSize {
		return fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrValueTooLarge, len(value),
			MaxValueSize)
	}
	return nil
}
