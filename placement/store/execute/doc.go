// Package execute takes commands at any member of a store, and finds out what became of them.
//
// An Executor has a command proposed in one term, and waits until the state machine says what it
// came to. How many commands wait, and for how many bytes, is bounded by a budget, of which clients
// that wait have their share by turns (package fairshare). Commands that come while others are on
// their way share an entry of the log (batch.go). A member that does not lead hands a command to
// the one that does (execute.go, forward.go). Package command says what commands are; what they do
// is the Machine's.
//
// # Locks
//
// Executor.mu guards who leads and which commands are under way, so that a command is registered
// under one leadership, and its outcome decided once. It is a leaf, as is the lock of the budget:
// no other lock is taken, and neither the Machine nor the Group is called, while one is held.
package execute
