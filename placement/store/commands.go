package store

import (
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// Put is an operation that writes a key.
func Put(key, value []byte) *storepb.Op {
	return &storepb.Op{Op: &storepb.Op_Put{Put: &storepb.Put{Key: key, Value: value}}}
}

// PutLeased is an operation that writes a key and attaches it to a lease.
func PutLeased(key, value []byte, lease int64) *storepb.Op {
	return &storepb.Op{Op: &storepb.Op_Put{Put: &storepb.Put{Key: key, Value: value, Lease: lease}}}
}

// Delete is an operation that deletes one key.
func Delete(key []byte) *storepb.Op {
	return &storepb.Op{Op: &storepb.Op_DeleteRange{DeleteRange: &storepb.DeleteRange{Key: key}}}
}

// Absent holds if the key does not exist.
func Absent(key []byte) *storepb.Compare { return ModifiedAt(key, 0) }

// ModifiedAt holds if the key was last written at the revision; revision 0 means that the key does
// not exist.
func ModifiedAt(key []byte, revision uint64) *storepb.Compare {
	return &storepb.Compare{Key: key, Target: storepb.Compare_MOD, Number: int64(revision)}
}

// If is a command that applies one list of operations if all comparisons hold, and otherwise the
// other.
func If(compare []*storepb.Compare, success, failure []*storepb.Op) *storepb.Command {
	return &storepb.Command{Op: &storepb.Command_Txn{
		Txn: &storepb.Txn{Compare: compare, Success: success, Failure: failure}}}
}

// Compact is a command that makes revisions below the given revision unreadable.
func Compact(revision uint64) *storepb.Command {
	return &storepb.Command{
		Op: &storepb.Command_Compact{Compact: &storepb.Compact{Revision: revision}}}
}

// Grant is a command that makes a lease.
func Grant(id int64, ttlMillis uint64) *storepb.Command {
	return &storepb.Command{Op: &storepb.Command_LeaseGrant{
		LeaseGrant: &storepb.LeaseGrant{Id: id, TtlMillis: ttlMillis}}}
}

// Revoke is a command that ends a lease and deletes its keys.
func Revoke(id int64) *storepb.Command {
	return &storepb.Command{
		Op: &storepb.Command_LeaseRevoke{LeaseRevoke: &storepb.LeaseRevoke{Id: id}}}
}
