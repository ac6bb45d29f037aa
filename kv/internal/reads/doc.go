// Package reads records what a transaction or a View has read, which must not change until it
// commits. It is for package kv.
package reads
