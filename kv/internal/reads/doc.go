// Package reads records the reads of a transaction or a View, which must stay valid until it
// commits. Package kv uses it.
package reads
