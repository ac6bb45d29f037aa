// Package clock has what a sender knows of the cluster's time, from the answers of its nodes.
//
// The session is the highest timestamp of any answer: a read at or above it is one of the present.
// Seen is the highest timestamp of what was written and read: a read at or above that sees it. The
// estimate is what the clock of some node shows now, without asking for it.
package clock
