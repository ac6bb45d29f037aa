// Package apply evaluates the commands of the log. The result of a command is a function of the
// state and the command only, so that all members reach the same state.
//
// A Machine holds the state of evaluation that is kept in memory: the applied index, the meta
// record, and the table of sessions. An Application applies the entries of one batch: its commands
// read the batch, with a tables.Reader, and write to it, and Effects collects their other changes.
// All changes stay invisible until the caller has committed the batch and published the effects. An
// Application that is given up has changed only the caches of keys (keycount, newest), which the
// caller then resets.
//
// Each file has the commands of one kind: txn.go, compact.go, lease.go, session.go, auth.go (with
// the members), alarm.go, import.go.
//
// The package takes no locks except those of these caches, and starts no goroutine. One goroutine
// at a time uses a Machine and its Applications.
package apply
