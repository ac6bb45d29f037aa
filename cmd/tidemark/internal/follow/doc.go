// Package follow appends the changes of a change feed to a file, and stores the position beside the
// file. A later process continues where an earlier one ended, even after a crash.
//
// The position is stored in a separate file, NAME.position: the feed's timestamp, and the length of
// the data file at that time. It is replaced atomically after the data file was synced. The next
// process cuts off the lines that were written after the last position, and gets them again from
// the feed. So each line is in the file once.
package follow
