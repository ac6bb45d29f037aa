// Package applyqueue runs the tasks of many groups on a few workers: those of a group in their
// order, and at most one worker at a time per group.
//
// # Two kinds of tasks
//
// Requests may wait for a task (Queue.Add), or not (Queue.AddDelayed): what a follower applies is
// of the second kind, and the entries of several messages together are one batch of the state
// database. So delayed tasks wait for Pool's delay, or for a task of the first kind behind them,
// or until they are too many bytes. When the delay is over, the group stands in a second line,
// from which the workers take one group for each lazyShare of the first.
//
//	Add        ──▶ queue ───────────────────────────┐
//	AddDelayed ──▶ delayed ── timer ──▶ lazy ───────┴──▶ a worker: Runner.RunTasks
//
// # Locks
//
// Pool.mu, then Queue.mu. Neither is held while a Runner is called.
//
// # Imports
//
// Nothing of the project.
package applyqueue
