// Package execute accepts commands at any member of a store, and determines their outcomes.
//
// An Executor proposes a command in one term, and waits for the result from the state machine. A
// budget bounds the number and bytes of waiting commands; waiting clients get their shares in turn
// (package fairshare). Commands that arrive while an entry is in flight share the next entry of the
// log (batch.go). A member that does not lead forwards a command to the leader (execute.go,
// forward.go). Package command defines commands; the Machine executes them.
//
// # Locks
//
// Executor.mu guards the leadership and the pending commands, so that a command is registered under
// one leadership, and its outcome decided once. Executor.mu and the lock of the budget are leaves:
// while either is held, no other lock is taken, and neither the Machine nor the Group is called.
package execute
