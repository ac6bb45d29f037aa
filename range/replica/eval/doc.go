// Package eval takes the writes of a partition from the queue to the log. An Evaluator owns the
// queue and the running evaluation; machine.Machine.Mu guards both.
//
// Enqueue puts a write into the queue, and Kick starts an evaluation: queued writes are taken
// (about one MiB at most) and evaluated in order, all effects go into one Raft entry, and the entry
// is proposed. Up to config.Limits.MaxInFlight entries are on their way; then writes wait in the
// queue, and the completion of an entry starts the next evaluation. A write that meets a lock waits
// in package concurrency, and returns to the front of the queue.
//
// An evaluation holds no lock while it reads the engine (see evaluation). It belongs to one
// leadership epoch: each step that has an effect compares the epoch under the lock. When an epoch
// ends, Finish answers what it leaves: proposed writes with OUTCOME_UNKNOWN, others with
// NOT_LEADER.
//
// Commands of packages gc and reshape, which no client has sent, are queued and evaluated like
// others (Own).
package eval
