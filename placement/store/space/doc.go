// Package space counts how many bytes a store has, against a quota.
//
// The size that counts is one that all members agree on: the bytes of the store's pairs, whatever
// files, memory and compression make of them (Put, LeaseBytes). It falls when history is compacted,
// and not some time later, when the disk has the room back.
//
// A Ledger has the size of what a member has applied. The leader reserves in it what a command can
// add before the command is proposed, and so the command that would cross the quota is refused.
// Commands that were let in before it count with what they may add, until they are applied. When
// they are, the size and what is reserved change in one step.
//
//	Reserve ──► propose ──► log ──► Apply ──► Applied: the new size, and no reservation any more
//	   │                     └─────────────► Release: the command will never be applied
//	   └──► refused: the quota would be crossed
//
// INVARIANT: size + reserved is at least the size that the store will have when all commands that
// this leader has let in are applied. So no order in which they come, and no number of them at a
// time, takes the store over its quota. Deletions reserve nothing and are never refused, although
// their marks take some bytes until history is compacted.
//
// The package imports nothing of the store.
package space
