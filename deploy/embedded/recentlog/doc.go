// Package recentlog keeps the last lines of a server's log in memory, for reports of faults. A
// Handler writes each record to the log's own handler, and to a bounded Lines.
package recentlog
