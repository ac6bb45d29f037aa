// Package backup is a server's part in backups. A Worker is the service by which a data node writes
// units; it reads through a Sender, as a client of its cluster that is a server, so that it reads
// its own replicas first and others where it has none. A Maker makes backups on the core's leader:
// it is what the records of package placement/server/backups are carried out by, and what the job
// of package range/backup/job knows of the cluster.
//
// Every server opens targets with the credentials of its own environment. The Maker has every data
// node read an object that the Maker has written, before a backup begins: a directory that the
// servers do not share, and a server without credentials, are noticed then.
package backup
