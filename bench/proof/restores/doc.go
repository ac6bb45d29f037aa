// Package restores makes backups and restores while other workloads write and faults happen. It
// compares the restored data with the source at the moment of the backup.
//
// Restores is a workload (package driver) like the workloads of bench/proof/workloads, for a
// simulated cluster and for real processes. One client writes a trace to a keyspace and to the
// coordination store. Another client carries out operations, one after the other. An operation has
// these steps:
//
//   - a full backup, or a chain of two or three backups; or a schedule with a log, and a moment
//     after its first backup;
//   - a scan of the source at the moment, as soon as the moment is known, before garbage collection
//     may remove the history;
//   - a restore of some keyspaces under other names;
//   - the comparison: every record with its value and expiry; no other records; the invariant of
//     the workload to which the keyspace belongs; the coordination store, key by key, with a read
//     at the revision in the backup; and the order between the two stores;
//   - the removal of everything that the operation has made, in the cluster and in the target.
//
// # Violations
//
// These are violations: a complete copy that differs from its source; a job that fails, unless
// unprotected history was collected; and in calm a job that is not over in time. In a storm an
// operation that takes too long is given up. At the end of the run nothing may be left: no job, no
// hidden keyspace, no consumer of a backup, no object in the target.
//
// # What is where
//
//   - restores.go: the workload; operation.go: an operation
//   - jobs.go: how jobs are started and awaited
//   - compare.go: the comparison; coordination.go: the comparison of the coordination store
//   - clean.go: the removal
//
// The package starts no goroutines. It must not import a test's cluster (kv/kvtest).
package restores
