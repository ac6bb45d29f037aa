package coord

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/kv"
)

// fencePrefix is put before the names of fences in keyspaces.
const fencePrefix = "coord.fence/"

// Fence refuses writes of holders that have lost their lock. A record in a keyspace has the highest
// token that was seen, and a transaction that checks the record with a lower token fails. All
// transactions that write data protected by the lock have to check the fence. The record may be in
// another keyspace than the data.
type Fence struct {
	// Keyspace is the keyspace of the record.
	Keyspace *kv.Keyspace
	// Name is the name of the fence: the name of the lock, for instance. The record's key is
	// "coord.fence/" and the name.
	Name string
}

// Key returns the key of the record.
func (f Fence) Key() []byte { return []byte(fencePrefix + f.Name) }

// Check makes the transaction fail with ErrFenced if a higher token was seen. Otherwise it raises
// the record to token. The transaction then commits only if no holder with a higher token has
// committed before it: transactions are serialisable, both transactions read the record, and at
// least one of them wrote it.
//
// Tokens are revisions of the coordination service. A restored service has to continue above all
// revisions that it had given out; `tidemark coord import` makes sure of that. Otherwise new
// holders are refused, and the error says how to continue.
//
// The function of an Update should return Check's error unchanged.
func (f Fence) Check(ctx context.Context, tx *kv.Txn, token Token) error {
	const op = "check the fence"
	switch {
	case f.Keyspace == nil:
		return invalid(op, f.Name, "the fence has no keyspace")
	case f.Name == "":
		return checkName(op, f.Name)
	case token <= 0:
		return invalid(op, f.Name, fmt.Sprintf("the token %d is none of a lock", token))
	}
	pair, err := tx.Get(ctx, f.Keyspace, f.Key())
	switch {
	case errors.Is(err, kv.ErrNotFound):
		return f.raise(tx, token)
	case err != nil:
		return err
	case len(pair.Value) != 8:
		return &Error{Op: op, Name: f.Name, wraps: []error{ErrInvalidArgument},
			Message: fmt.Sprintf("the record has %d bytes, not 8; somebody else wrote it",
				len(pair.Value))}
	}
	highest := Token(binary.BigEndian.Uint64(pair.Value))
	switch {
	case highest > token:
		return &Error{Op: op, Name: f.Name, wraps: []error{ErrFenced}, Message: fmt.Sprintf(
			"a holder with token %d has been there, and this one has %d: a later holder has the lock, or "+
				"has had it; or the coordination service was restored from a snapshot without raising its "+
				"revisions, and gives out lower tokens than before. If it was: see that no holder from "+
				"before is left, and delete the key %q of keyspace %s", highest, token, f.Key(),
			f.Keyspace.Name())}
	case highest == token:
		return nil
	}
	return f.raise(tx, token)
}

func (f Fence) raise(tx *kv.Txn, token Token) error {
	return tx.Put(f.Keyspace, f.Key(), binary.BigEndian.AppendUint64(nil, uint64(token)), kv.NoTTL())
}
