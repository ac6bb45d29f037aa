// Package writes is the write buffer of a transaction, with savepoints. Package kv uses it.
package writes
