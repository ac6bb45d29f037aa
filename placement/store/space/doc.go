// Package space counts how many bytes a store has, against a quota.
//
// All members agree on the size: it is the bytes of the store's pairs, whatever files, memory and
// compression make of them (Put, LeaseBytes). It falls when history is compacted, not later when
// the disk gets the room back.
//
// A Ledger has the size of the state that a member has applied. Before a command is proposed, the
// leader reserves in it what the command can add, and so refuses the command that would cross the
// quota. Admitted commands count with what they may add until they are applied. Then the size and
// the reservation change in one step.
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
