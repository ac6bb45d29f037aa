// Package backoff is the exponential backoff with jitter that all of Tidemark uses: the wait
// doubles after each failure in a row, up to a limit, less a random part, so that clients that have
// failed at the same moment do not return at the same moment. A caller that may also be woken for
// other reasons uses Step, and waits by itself.
//
// The package imports nothing of Tidemark.
package backoff
