// Package space counts the bytes of a store against a quota.
//
// All members agree on the size: it is the sum of the lengths of the store's pairs (Put,
// LeaseBytes), not their size on disk. It falls when history is compacted, before the disk space
// becomes free.
//
// A Ledger has the size of the state that a member has applied. Before a command is proposed, the
// leader reserves the bytes that the command can add. If they would cross the quota, the command is
// refused. When the command is applied, the size and the reservation change in one step.
//
//	Reserve ──► propose ──► log ──► Apply ──► Applied: the new size, and no reservation any more
//	   │                     └─────────────► Release: the command will never be applied
//	   └──► refused: the quota would be crossed
//
// INVARIANT: size + reserved is at least the size that the store will have when all commands that
// this leader has admitted are applied. So the store stays below its quota, in whatever order and
// number they come. Deletions reserve nothing and are never refused, although their marks take some
// bytes until history is compacted.
//
// The package imports nothing of the store.
package space
