// Package spans is the table of which replica of a node has which span of internal keys in the
// state database. Table has a lock of its own, under which nothing else is called or locked.
package spans
