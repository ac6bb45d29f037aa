// Package backups manages the backups that the core makes: their records, the calls about them, and
// the leader's goroutine that has them made.
//
// A record says which backup is wanted, and its outcome. The progress of the backup is in the
// target and not in the record, so that a new leader continues from the target (package
// range/backup/job). The leader may change at any time, and two leaders at the same time do no
// harm.
//
// A Maker, which the owner of the core's member provides, makes one backup. Backups are made one
// after the other, in the order of their requests: two at the same time would each take longer, and
// would slow down requests of clients more.
//
// A schedule says which backups are made automatically. The same goroutine begins the backups that
// are due. It writes the record of the backup and the record of the schedule in one transaction, at
// the beginning and at the end of the backup. On the leader, a separate goroutine writes the log of
// a schedule (logs.go).
//
// The lock of Backups guards the progress of the running backup. No other lock is taken while it is
// held.
package backups
