// Package reading reads a store without the log: Index says when a member has applied all that a
// read must find, and Reads has the reads themselves, at one revision (View) or of one state with
// what its users may see (ReadTxnAs), which may share their work (WithSharedRead).
//
// A read of the newest state waits until this member has applied what was committed anywhere when
// the read began. The leader knows that index: followers learn it from the leader, so none of them
// has applied more than the leader knows to be committed, though it may have applied more than the
// leader has. A member that does not lead asks the leader, with one question for all reads that
// come meanwhile.
//
// INVARIANT: a question that is answered for a read was asked after the read began.
//
// Index.mu guards the reads that wait for entries, and the next question. It is a leaf: nothing is
// called, and no other lock taken, while it is held.
package reading
