// Package coredisk watches the disk of a member of the core, and makes the member transfer its
// leaderships while the disk is slow or hangs (Watch). One goroutine does the checks. The fields of
// its state belong to that goroutine.
package coredisk
