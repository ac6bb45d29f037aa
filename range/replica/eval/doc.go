// Package eval takes the writes of a partition from the queue to the log. An Evaluator owns the
// queue and the evaluation at work; machine.Machine.Mu guards both.
//
// Enqueue puts a write into the queue, and Kick has the queue evaluated: what is queued is taken
// (about one MiB at most) and evaluated in order, all effects go into one Raft entry, and that is
// proposed. Up to config.Limits.MaxInFlight entries are on their way; then the queue waits, and the
// completion of an entry sets off the next evaluation. What meets a lock waits in package
// concurrency, and returns to the front of the queue.
//
// An evaluation holds no lock while it reads the engine (see evaluation). It belongs to one
// leadership epoch: each step that has an effect compares the epoch under the lock. What an epoch
// leaves when it ends is answered in Finish: what was proposed OUTCOME_UNKNOWN, what was not
// NOT_LEADER.
//
// Commands that no client has sent, of packages gc and reshape, are evaluated in their turn too
// (Own).
package eval
