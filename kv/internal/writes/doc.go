// Package writes is the write buffer of a transaction, with savepoints. It is for package kv.
package writes
