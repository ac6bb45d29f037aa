// Package datadir is the data directory of a server: its lock, the file that says which server the
// directory belongs to, the databases of the server's parts, and the record of recoveries.
//
// A Directory is opened by one process at a time. Every change of its files is one that a crash
// leaves made or not made. The methods may be called by any goroutine; the lock of the identity is
// held while the identity is written.
//
// A directory whose log is gone, or whose recovery was begun and not ended, is refused
// (MustHaveLogs, MustBeRecovered): a server that has forgotten what it promised must not take part.
package datadir
