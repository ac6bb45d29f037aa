package txn

import (
	"bytes"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// MaxWantedKey is the longest key that is told of a wound, in bytes. It is stored with the record
// of the wounded transaction, which has to stay small, and is for people only.
const MaxWantedKey = 1 << 10

// Wanted is the key of the lock for which a transaction was wounded: the older one wanted it. The
// zero Wanted is not known, or was longer than MaxWantedKey.
type Wanted struct {
	Keyspace keys.KeyspaceID
	// Key is a user key.
	Key []byte
}

// parseWanted is the wanted key that a message names. It shares no memory with that. What cannot be
// one is left out, since nothing depends on it.
func parseWanted(keyspace uint32, key []byte) Wanted {
	if len(key) > MaxWantedKey || keys.ValidateUserKey(key) != nil {
		return Wanted{}
	}
	return Wanted{keys.KeyspaceID(keyspace), bytes.Clone(key)}
}

// WoundOf is the transaction for which another was wounded, and over which key, as far as a status
// tells.
func WoundOf(s *kvpb.TransactionStatus) (wounder ID, wanted Wanted) {
	if s.GetReason() != kvpb.AbortReason_WOUNDED {
		return ID{}, Wanted{}
	}
	wounder, _ = ParseOptionalID(s.GetWounder()) // for people
	return wounder, parseWanted(s.GetWantedKeyspace(), s.GetWantedKey())
}
