// Package reading reads a store without the log. Index determines when a member has applied all
// entries that a read must see. Reads has the reads: at one revision (View), or of one state with
// permissions (ReadTxnAs). Reads may share their work (WithSharedRead).
//
// A read of the newest state waits until this member has applied the entries that any member knew
// to be committed when the read began. The leader knows that index: followers learn it from the
// leader, so none of them has applied more than the leader knows to be committed, though it may
// have applied more than the leader has. A member that does not lead asks the leader. Reads that
// arrive while a request is running share the next request.
//
// INVARIANT: a request that serves a read was sent after the read began.
//
// Index.mu guards the reads that wait for entries, and the next request. It is a leaf: no other
// package is called, and no other lock taken, while it is held.
package reading
