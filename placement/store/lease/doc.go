// Package lease counts leases down: it knows which exist, and on the leader, how long each has
// left, which have to end, and of which the rest has to be noted in the log.
//
// A Lessor follows the replicated state (Replace, Changed) and reads no log itself. It proposes
// nothing: Due returns what is due, and its owner proposes that. Only the leader counts, on its
// monotonic clock (Activate). A new leader gives each lease its full term, or the rest in the last
// note.
//
//	Apply ──► Changed ──► leases ──► Due ──► revocations and notes, which the owner proposes
//	                        ▲
//	        Renew ──────────┘ moves a deadline, in memory alone
//
// INVARIANT: a lease whose end was returned by Due cannot be renewed any more, and one of which a
// note was returned cannot be renewed until the log has taken the note back (Renew).
//
// A process that was paused heard no renewals: the silence was its own and not that of the leases'
// owners. Due then ends no lease, and gives each a full term, once until it is renewed.
//
// Lessor.mu is a leaf: nothing else is locked or called while it is held.
//
// The package imports nothing of the project but hlc and storepb.
package lease
