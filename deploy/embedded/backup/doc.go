// Package backup is a server's part in backups. A Worker is the service by which a data node writes
// units. It reads through a Sender, as a client of its cluster with the identity of a server. It
// reads its own replicas first, and other replicas where it has none. A Maker makes backups on the
// core's leader: it carries out the records of package placement/server/backups, and implements the
// cluster for the jobs of package range/backup/job.
//
// Every server opens targets with the credentials of its own environment. Before a backup begins,
// the Maker writes an object and has every data node read it. This detects a directory that the
// servers do not share, and a server without credentials.
//
// Both ends of a call between the two are in one file: check_target.go, export.go, changes.go,
// load.go, and Time in moment.go. Below them are worker.go, and for the Maker maker.go, cluster.go
// and restore.go, which is the state of a restore. Above them are make.go and restore_steps.go: the
// steps of a backup and of a restore. A Part (part.go) has the Worker and makes the Maker, which
// reaches the core and the coordination store through a Member.
package backup
