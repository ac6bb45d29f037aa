// Package calm judges errors. A storm is the time in which a fault is active, and some time after
// the fault (Settling). All other time is calm. In a storm an operation may fail. In calm it may
// not: every error of an operation that began and ended in calm is a broken promise, unless the API
// promises this error (Promised).
//
//   - weather.go: which faults are active, and since when it is calm.
//   - settling.go: how long each kind of fault is felt after its end, and why.
//   - judge.go: what the end of an operation is: a success, a failure, a conflict, or a lack of
//     patience.
//   - tally.go: how often each kind of operation ended how, in calm and in storm, and the verdict
//     on a run.
//   - table.go: the table that every run prints.
//
// The simulated cluster and real processes use the same code. The package starts no goroutine, and
// its memory does not grow with the length of a run. It knows package kv, and no server.
package calm
