// Package writes is what a transaction has written and not committed: its write buffer, with
// savepoints. It is for package kv.
package writes
