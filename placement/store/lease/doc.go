// Package lease counts leases down: which exist, and on the member that leads, how long each has
// left, which are to end, and of which the rest is to be noted in the log.
//
// A Lessor follows the replicated state (Replace, Changed) and reads no log itself. It proposes
// nothing: Due returns what is due, and its owner proposes that. Only a member that leads counts,
// on its monotonic clock (Activate). A new leader gives each lease its full term, or what the last
// note says that it had left.
//
//	Apply ──► Changed ──► leases ──► Due ──► revocations and notes, which the owner proposes
//	                        ▲
//	        Renew ──────────┘ moves a deadline, in memory alone
//
// INVARIANT: a lease whose end was returned by Due cannot be renewed any more, and one of which a
// note was returned cannot be renewed until the log has taken the note back (Renew).
//
// A process that was paused heard no renewals, so that the silence was its own and not that of the
// leases' owners: Due then ends none, and gives them a full term, once until they are renewed.
//
// Lessor.mu is a leaf: nothing else is locked or called while it is held.
//
// The package imports nothing of the project but hlc and storepb.
package lease
