// Package lease counts leases down. It knows which leases exist, and on the leader the remaining
// time of each, which leases have to end, and which need a checkpoint: a record of the remaining
// time in the log.
//
// A Lessor follows the replicated state (Replace, Changed) and reads no log itself. It proposes
// nothing: Due returns the due ends and checkpoints, and the Lessor's owner proposes them. Only the
// leader counts, on its monotonic clock (Activate). A new leader gives each lease its full term, or
// the remaining time of its last checkpoint.
//
//	Apply ──► Changed ──► leases ──► Due ──► revocations and notes, which the owner proposes
//	                        ▲
//	        Renew ──────────┘ moves a deadline, in memory alone
//
// INVARIANT: a lease whose end was returned by Due cannot be renewed any more. A lease whose
// checkpoint was returned cannot be renewed until the log has revoked the checkpoint (Renew).
//
// A process that was paused could not hear renewals. Due then ends no lease, and gives each lease a
// full term, at most once between two renewals.
//
// Lessor.mu is a leaf: nothing else is locked or called while it is held.
//
// Of the project, the package imports only hlc and storepb.
package lease
