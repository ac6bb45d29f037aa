// Package backoff has how all of Tidemark waits before it tries again: for twice as long after each
// failure in a row, up to a limit, and less a random part, so that clients that have failed at the
// same moment do not come back at the same moment. Where a caller has other reasons to wake than
// the time, it waits by itself for what Step says.
//
// The package imports nothing of Tidemark.
package backoff
