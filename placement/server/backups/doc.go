// Package backups has the backups that the core makes: their records, the calls about them, and the
// goroutine of the leader that has them made.
//
// A record says which backup is wanted and what became of it. What has been written so far is in
// the target, not in the record, and a new leader continues from there (package range/backup/job).
// So the leader may change at any time, and two leaders for a moment do no harm.
//
// A Maker, which the owner of the core's member gives, makes one backup. Backups are made one after
// the other, in the order in which they were asked for: two at a time would each take longer, and
// cost requests more.
//
// A schedule says which backups are made by themselves. The same goroutine begins those that are due:
// it writes the record of the backup and that of the schedule together, and so it does at the end of
// the backup. The log of a schedule is written by a goroutine of its own on the leader, beside the
// backups (logs.go).
//
// The lock of Backups guards the progress of what runs. It is a leaf.
package backups
