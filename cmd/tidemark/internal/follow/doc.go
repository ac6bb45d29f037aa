// Package follow appends what a change feed brings to a file, and keeps beside it how far that is,
// so that a process that comes after goes on where this one was, whatever way this one ended.
//
// The position is a file of its own, NAME.position: the feed's timestamp, and how long the file was
// then. It is replaced, in one step, after the file was synced. What a process has written after
// the last position is cut off by the next one, which gets it again from the feed: so each line is
// in the file once.
package follow
