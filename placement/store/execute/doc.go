// Package execute takes commands at any member of a store, and finds out their outcomes.
//
// An Executor proposes a command in one term, and waits for the result from the state machine. A
// budget bounds the number and bytes of waiting commands; clients that wait get their shares in
// turn (package fairshare). Commands that come while others are on their way share an entry of the
// log (batch.go). A member that does not lead forwards a command to the leader (execute.go,
// forward.go). Package command defines commands; the Machine defines what they do.
//
// # Locks
//
// Executor.mu guards who leads and which commands are under way, so that a command is registered
// under one leadership, and its outcome decided once. It is a leaf, as is the lock of the budget:
// no other lock is taken, and neither the Machine nor the Group is called, while one is held.
package execute
