// Package datadir manages the data directory of a server: its lock, the file that says to which
// server the directory belongs, the databases of the server's parts, and the record of recoveries.
//
// A Directory is opened by one process at a time. After a crash, each change of its files is made
// or not made. The methods may be called by any goroutine. The lock of the identity is held while
// the identity is written.
//
// A directory whose log is gone, or whose recovery was begun and not completed, is refused
// (MustHaveLogs, MustBeRecovered): a server that has forgotten its promises must not take part.
package datadir
