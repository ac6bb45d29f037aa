package txn

import (
	"bytes"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// MaxWantedKey is the greatest length, in bytes, of a key that is stored with a wound. It lies in
// the record of the wounded transaction, which has to stay small, and is only for messages to
// users.
const MaxWantedKey = 1 << 10

// Wanted is the key because of which a transaction was wounded: it held the lock that an older
// transaction wanted. The zero Wanted means not known, or longer than MaxWantedKey.
type Wanted struct {
	Keyspace keys.KeyspaceID
	// Key is a user key.
	Key []byte
}

// parseWanted reads the wanted key of a message. The result shares no memory with the message. An
// invalid key is left out, since nothing depends on it.
func parseWanted(keyspace uint32, key []byte) Wanted {
	if len(key) > MaxWantedKey || keys.ValidateUserKey(key) != nil {
		return Wanted{}
	}
	return Wanted{keys.KeyspaceID(keyspace), bytes.Clone(key)}
}

// WoundOf returns the transaction that wounded another one, and the key that it wanted, as far as a
// status tells.
func WoundOf(s *kvpb.TransactionStatus) (wounder ID, wanted Wanted) {
	if s.GetReason() != kvpb.AbortReason_WOUNDED {
		return ID{}, Wanted{}
	}
	wounder, _ = ParseOptionalID(s.GetWounder()) // only for messages
	return wounder, parseWanted(s.GetWantedKeyspace(), s.GetWantedKey())
}
