// Package proposal holds what lies between a queued write and its entry in the Raft log: the queue
// of waiting writes, the pending writes (evaluated, and not yet applied), the memory of recently
// written keys, and the entry with its codec.
//
//	Queue ── evaluation ── Entry.Encode ── Raft log ── Decode, WalkBatch ── apply
//	            │                                                            │
//	            └ Pending.Add                      Pending.Remove, Recent.Note ┘
//
// # Invariants
//
//   - An entry has one encoding: decoding and encoding give the same bytes. A replica must not
//     guess: an entry that does not decode fails the replica (ErrMalformed).
//   - A write leaves Pending only after it can be read from the engine. An evaluation that finds no
//     write of a key in Pending, and reads the engine afterwards, sees every write that was added
//     before it looked.
//   - Recent never claims too much: a timestamp that it returns is at or above those of all applied
//     versions of the key that this leadership epoch has written.
//
// # Locks
//
// Nothing here has a lock, starts a goroutine, or reads a clock. The replica guards Queue, Pending
// and Recent by the lock under which it chooses timestamps. A Budget is safe for concurrent use.
//
// # Imports
//
// hlc, range/keys and range/mvcc. Nothing of range/replica.
package proposal
