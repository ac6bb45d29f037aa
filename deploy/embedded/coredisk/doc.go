// Package coredisk watches the disk of a member of the core, and has the member give its
// leaderships away while the disk is slow or stands still (Watch). One goroutine looks; its fields
// belong to that goroutine.
package coredisk
