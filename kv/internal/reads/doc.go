// Package reads is what a transaction or a View has read: what must not change until it commits. It
// is for package kv.
package reads
