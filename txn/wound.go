package txn

import (
	"bytes"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// MaxWantedKey is the greatest length, in bytes, of a key that is stored with a wound. The key is
// stored in the wounded transaction's record, which has to stay small, and serves only messages to
// users.
const MaxWantedKey = 1 << 10

// Wanted is the key on which a transaction was wounded: the transaction held the lock, and an older
// transaction wanted it. The zero Wanted means unknown, or longer than MaxWantedKey.
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

// WoundOf returns the transaction that wounded another one, and the key that the wounding one
// wanted, as far as the status names them.
func WoundOf(s *kvpb.TransactionStatus) (wounder ID, wanted Wanted) {
	if s.GetReason() != kvpb.AbortReason_WOUNDED {
		return ID{}, Wanted{}
	}
	wounder, _ = ParseOptionalID(s.GetWounder()) // only for messages
	return wounder, parseWanted(s.GetWantedKeyspace(), s.GetWantedKey())
}
