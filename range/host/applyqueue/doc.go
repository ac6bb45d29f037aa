// Package applyqueue runs the tasks of many groups on a few workers: the tasks of a group in their
// order, and on at most one worker at a time.
//
// # Two kinds of tasks
//
// Requests may wait for a task (Queue.Add), or not (Queue.AddDelayed). The tasks of followers,
// which apply entries, are of the second kind: they are delayed so that the entries of several
// messages become one batch of the state database. A delayed task waits until the pool's delay is
// over, until a task of the first kind is queued behind it, or until the delayed tasks exceed
// MaxDelayedBytes. When the delay is over, the group joins a second line, from which the workers
// take one group for each lazyShare groups of the first line.
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
