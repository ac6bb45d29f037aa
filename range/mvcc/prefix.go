package mvcc

import "github.com/cockroachdb/pebble/v2/cockroachkvs"

// dataPrefix is the part of a versioned or unversioned data key that all versions of the key share:
// the unversioned key. It aliases the argument, which must be a state key.
func dataPrefix(stateKey []byte) []byte { return stateKey[:cockroachkvs.Split(stateKey)] }
