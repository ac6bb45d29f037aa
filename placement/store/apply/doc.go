// Package apply evaluates the commands of the log. The result of a command is a function of the
// state and the command only, so that all members come to the same.
//
// A Machine has in memory what evaluation needs beside the database: the applied index, the store's
// own record, and the table of sessions. An Application is the work of one batch: its commands read
// the batch, with a tables.Reader, and write to it, and Effects collects their other changes.
// Nothing of that is visible before the caller has committed the batch and published the effects;
// an Application that is given up has changed only the memories of keys (keycount, newest), which
// the caller resets then.
//
// A file has the commands of one kind: txn.go, compact.go, lease.go, session.go, auth.go (with the
// members), alarm.go, import.go.
//
// The package takes no lock but those of these memories, and starts no goroutine. A Machine and its
// Applications are for one goroutine at a time.
package apply
