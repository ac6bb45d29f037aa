// Package follow appends the changes of a change feed to a file, and stores the position beside it,
// so that a later process continues where an earlier one ended, however it ended.
//
// The position is a file of its own, NAME.position: the feed's timestamp, and the length of the
// file at that time. It is replaced atomically after the file was synced. The next process cuts off
// the lines written after the last position, and gets them again from the feed: so each line is in
// the file once.
package follow
